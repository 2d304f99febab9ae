// SPDX-License-Identifier: Apache-2.0
//
// cli/run_model.cpp: `ddhost train`, `ddhost eval`, `ddhost generate`.
#include <ostream>

#include "cli/commands.hpp"
#include "cli/fingerprints.hpp"
#include "cli/load_guard.hpp"
#include "cli/prepare.hpp"
#include "cli/resume.hpp"
#include "config/replaced.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/loop/rank.hpp"
#include "engine/weights/instruction_set.hpp"
#include "launch/launch.hpp"

namespace ddhost {
namespace {

// Every rank gets its own copy of the configuration.
int start_rank(const PreparedRun& run, const RankSeat& seat) { return run_rank(run, run.config.clone(), seat); }

Work work_of(Command command) {
  return command == Command::kEval ? Work::kEvaluate : command == Command::kGenerate ? Work::kGenerate : Work::kTrain;
}

// The run writes its effective configuration as config.json into its folder.
void keep_config_file(const CommandLine& line, const PreparedRun& run) {
  std::error_code ec;
  if (!line.config_file.empty() && std::filesystem::equivalent(line.config_file, run.run_dir / "config.json", ec))
    ddh::fail(DDH_ALREADY_EXISTS, "run.dir '", run.run_dir.string(),
              "' holds the file of --config, which the run would ", "overwrite; choose another run.dir");
}

std::vector<std::string> libraries_of(const PreparedRun& run) {
  std::vector<std::string> files;
  const auto add = [&](const Plugin& plugin) { files.push_back(plugin.file.string()); };
  for (const Plugin* plugin : {&run.model, &run.strategy, &run.comm, &run.device, &run.schedule}) add(*plugin);
  if (run.has_host_comm()) add(run.host_comm);
  for (const RunPlan::Optimizer& optimizer : run.optimizers) add(optimizer.plugin);
  for (const RunPlan::PhaseSchedule& schedule : run.phase_schedules) add(schedule.plugin);
  for (const Plugin& monitor : run.monitors) add(monitor);
  return files;
}

// If a run could not start, the next attempt can use its folder.
Outcome start(PreparedRun& run) {
  try {
    for (const std::string& warning : choose_checkpoints(run))
      print_sentence("warning: " + run.config.in_words_of_user(warning));
    run.fingerprints = fingerprints_of(run);
    LaunchArgs args{run.world_size, run.ranks_per_node, run.ranks_are_threads};
    args.watchdog = watchdog_limits(run.config);
    args.libraries = libraries_of(run);
    return launch(args, [&run](const RankSeat& seat) { return start_rank(run, seat); });
  } catch (...) {
    if (run.work == Work::kTrain) leave_unused_folder(run);
    throw;
  }
}

int train_or_use(const CommandLine& line, PreparedRun& run) {
  const bool trains = run.work == Work::kTrain;
  if (trains) {
    require_checkpoint(run);
    if (run.wish.from == ResumeWish::From::none) keep_config_file(line, run);
    make_run_folder(run);
  }
  const Outcome outcome = start(run);
  if (!outcome.sentence.empty()) print_sentence(run.config.in_words_of_user(outcome.sentence));
  if (trains && outcome.exit_code != 0) leave_unused_folder(run);
  return outcome.exit_code;
}

}  // namespace

int run_model(const CommandLine& line, Registry& registry, std::ostream& out) {
  UserConfig user = UserConfig::read(line.config_file, line.overrides);
  const std::vector<std::string> replaced = replace_excluded_options(user);
  const int world_size = wanted_world_size(user, registry);
  share_cores(world_size);
  limit_instruction_set();
  PreparedRun run = prepare_run(user, registry, world_size, work_of(line.command));
  for (const auto& warnings : {replaced, run.replaced, registry.warnings(), run.config.warnings()})
    for (const std::string& warning : warnings) print_sentence("warning: " + warning);
  if (line.dry_run) {
    out << run.config.effective().dump(2) << '\n';
    return 0;
  }
  try {
    return train_or_use(line, run);
  } catch (const ddh::Error& error) {
    throw ddh::Error(error.code(), run.config.in_words_of_user(error.what()));
  }
}

}  // namespace ddhost
