// SPDX-License-Identifier: Apache-2.0
//
// cli/run_model.cpp: `ddhost train`, `ddhost eval`, `ddhost generate`.
#include <unistd.h>

#include <iostream>
#include <memory>
#include <optional>
#include <ostream>

#include "base/json.hpp"
#include "base/terminal.hpp"
#include "base/text.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "cli/commands.hpp"
#include "cli/plan/memory_changes.hpp"
#include "cli/rank_output.hpp"
#include "cli/run_hosts.hpp"
#include "cli/user_files.hpp"
#include "config/compat.hpp"
#include "config/replaced.hpp"
#include "config/run_length.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/loop/rank.hpp"
#include "engine/record/closing.hpp"
#include "engine/record/run_history.hpp"
#include "engine/state/initialize.hpp"
#include "launch/launch.hpp"
#include "live/address.hpp"
#include "live/live_page.hpp"
#include "plan/convert.hpp"
#include "plan/decisions.hpp"
#include "plan/load_guard.hpp"
#include "plan/prepare.hpp"
#include "plan/resume.hpp"
#include "plan/run_facts.hpp"
#include "plan/run_folder.hpp"
#include "report/page.hpp"

namespace ddhost {
namespace {

// The head prepares the run meanwhile, which may convert weights of another program. If it ends, so does the wait.
constexpr std::chrono::hours kDecisionTimeout{24};

void print_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) print_sentence("warning: " + warning);
}

// Every rank gets its own copy of the configuration.
int start_rank(const PreparedRun& run, const RankSeat& seat) {
  open_output(run, seat.rank);
  return in_words_of_user(run.config, [&] { return run_rank(run, run.config.clone(), seat); });
}

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

std::string settled(const NamedCheckpoint& named) {
  for (const std::string& note : named.notes) print_sentence(note);
  return named.folder.string();
}

// Before any rank starts, so that all of them read the same weights, and config.json says which. A resumed run does not
// read train.init_from.
void settle_weights(PreparedRun& run) {
  const Config::Value* const given = run.config.find("train.init_from");
  Json files = given->value;
  const std::string source = given->source;
  if (files.is_string()) files = settled(named_weights(files.get<std::string>()));
  if (files.is_array())
    for (Json& entry : files)
      if (entry.contains("file") && entry["file"].is_string())
        entry["file"] = settled(named_weights(entry["file"].get<std::string>()));
  run.config.set("train.init_from", files, source);
}

// Reads the files of train.init_from that other programs wrote, once for all ranks.
void convert_weights(PreparedRun& run, const Registry& registry) {
  const WatchdogLimits watchdog = watchdog_limits(run.config);
  const uint64_t memory = convert_memory(run.config.get<std::string>("run.convert_memory"), "run.convert_memory");
  const ConvertRequest request{run.config.get<std::string>("run.format"),
                               run.run_dir,
                               /*weights_only=*/true,
                               {memory, "run.convert_memory",
                                watchdog.notice.count() == 0 ? watchdog.notice : watchdog.abort, "run.watchdog_abort"}};
  std::vector<std::string> notes;
  for (const InitFile& entry : init_files(run.config.find("train.init_from")->value.dump())) {
    if (run.converted.contains(entry.file)) continue;
    if (std::optional<ConvertedFile> file = convert_foreign(entry.file, request, registry, notes))
      run.converted.emplace(entry.file, *std::move(file));
  }
  for (const std::string& note : notes) print_sentence(note);
}

std::vector<std::string> libraries_of(const PreparedRun& run) {
  std::vector<std::string> files;
  const auto add = [&](const Plugin& plugin) { files.push_back(plugin.file.string()); };
  for (const Plugin* plugin : {&run.model, &run.strategy, &run.comm, &run.device, &run.schedule}) add(*plugin);
  if (run.has_host_comm()) add(run.host_comm);
  if (run.has_inside_comm()) add(run.inside_comm);
  if (run.has_codec()) add(run.codec);
  for (const RunPlan::Optimizer& optimizer : run.optimizers) add(optimizer.plugin);
  for (const RunPlan::Optimizer& follower : run.followers) add(follower.plugin);
  for (const RunPlan::PhaseSchedule& schedule : run.phase_schedules) add(schedule.plugin);
  for (const Plugin& monitor : run.monitors) add(monitor);
  return files;
}

// In the loader: a run whose ranks can start.
void make_ready(const CommandLine& line, PreparedRun& run, const Registry& registry, LoaderRecord& record) {
  if (run.work == Work::kTrain) {
    require_checkpoint(run);
    if (!goes_on_in(run.run_dir, run.wish)) keep_config_file(line, run);
    make_run_folder(run);
    record.set_folder(folder_note(run));
  }
  for (const std::string& warning : choose_checkpoints(run))
    print_sentence("warning: " + run.config.in_words_of_user(warning));
  if (run.wish.from == ResumeWish::From::newest && run.resume.empty()) settle_weights(run);
  if (run.resume.empty()) convert_weights(run, registry);
  run.fingerprints = fingerprints_of(run);
}

void print_configuration(const PreparedRun& run, std::ostream& out) {
  out << json_document(run.config.effective());
  if (!out.flush()) throw OutputError();
}

// What the user asks for.
struct Request {
  const CommandLine& line;
  const UserConfig& user;
  const std::vector<std::string>& replaced;  // sentences: what the command line replaces in the file
  const RunPlace& place;
  Cluster* cluster;  // the other launchers of the run; null: there are none
};

// In the loader of another host than the head's.
Prepared prepare_as_member(const Request& request, Registry& registry, LoaderRecord& record) {
  CommandLine line = request.line;
  const Json decisions = await_decisions(request.cluster->loader_kv(), kDecisionTimeout);
  if (work_of(line.command) == Work::kTrain) record.set_folder(member_note(decisions.at("run_dir").get<std::string>()));
  for (Override& more : overrides_of(decisions)) line.overrides.push_back(std::move(more));
  UserConfig user = read_user_files(line, line.overrides, registry).user;
  static_cast<void>(replace_excluded_options(user));
  const auto run = std::make_shared<PreparedRun>(
      prepare_run(std::move(user), registry, request.place, work_of(line.command), &record));
  in_words_of_user(run->config, [&] {
    take_over(*run, decisions);
    if (run->resume.empty()) convert_weights(*run, registry);
    run->fingerprints = fingerprints_of(*run);
  });
  if (run->work == Work::kTrain) run->facts = run_facts(*run, run->config.warnings());  // rank 0 may be here
  return {run->ranks_are_threads, libraries_of(*run), [run](const RankSeat& seat) { return start_rank(*run, seat); }};
}

// In the loader.
Prepared prepare(const Request& request, Registry& registry, LoaderRecord& record, std::ostream& out) {
  const CommandLine& line = request.line;
  if (request.cluster != nullptr && !request.cluster->is_head()) return prepare_as_member(request, registry, record);
  const auto run =
      std::make_shared<PreparedRun>(prepare_run(request.user, registry, request.place, work_of(line.command), &record));
  const AskedRun asked{line, registry, request.place};
  run->prints_json = line.json;
  for (const auto& warnings :
       {request.place.device.warnings, request.replaced, run->replaced, registry.warnings(), run->config.warnings()})
    print_warnings(warnings);
  if (!line.dry_run && request.cluster == nullptr) require_fit_of_many_ranks(asked, *run);
  in_words_of_user(run->config, [&] {
    if (run->wish.from == ResumeWish::From::path)
      run->wish.checkpoint = settled(named_checkpoint(run->wish.checkpoint));
    if (run->wish.from == ResumeWish::From::path && line.restarts > 0)
      run->wish = {ResumeWish::From::newest, {}, run->wish.checkpoint};
    if (run->wish.from == ResumeWish::From::none) settle_weights(*run);
    if (!line.dry_run) return make_ready(line, *run, registry, record);
    print_configuration(*run, out);
    if (run->work == Work::kTrain) std::cerr << planned_memory(*run);
  });
  if (line.dry_run) return {};
  require_own_output(*run);
  if (request.cluster != nullptr)
    publish_decisions(*run, request.cluster->loader_kv());
  else if (run->work == Work::kTrain)
    run->with_changes = [asked](Shortage shortage) { return with_changes(asked, std::move(shortage)); };
  if (run->work == Work::kTrain) {
    std::vector<std::string> warnings = request.place.device.warnings;
    for (const auto& more : {request.replaced, run->replaced, registry.warnings(), run->config.warnings()})
      warnings.insert(warnings.end(), more.begin(), more.end());
    run->facts = run_facts(*run, warnings);
  }
  return {run->ranks_are_threads, libraries_of(*run), [run](const RankSeat& seat) { return start_rank(*run, seat); }};
}

LaunchArgs launch_args(Command command, const Config& host, int world_size, Cluster* cluster) {
  LaunchArgs args;
  args.world_size = world_size;
  args.cluster = cluster;
  args.ranks_per_node = static_cast<int>(host.get<int64_t>("run.ranks_per_node"));
  args.watchdog = watchdog_limits(host);
  args.named_output = named_output(host, cluster, world_size);
  args.stop_grace = time_of(host, "launch.grace");
  if (command == Command::kEval) args.unit = "micro-batch";
  if (command == Command::kGenerate) args.unit = "item";
  return args;
}

// "; it fits with strategy.plugin=zero3, or with train.recompute=1"
std::string changes_text(const TriedChanges& tried) {
  if (tried.end.exit_code != 0) return "; no change could be tried: " + tried.end.sentence;
  if (tried.changes.empty())
    return "; tried were other strategies with their defaults, recomputation, fewer ranks, optimizer state on a disk "
           "and "
           "smaller micro-batches, and none makes it fit";
  std::string text = "; it fits with ";
  for (const MemoryChange& change : tried.changes)
    text += (&change == &tried.changes.front() ? "" : ", or with ") + change.text();
  return text;
}

struct ReportWishes {
  bool has_page, is_quiet;
};

// Notes the end of a training in its folder, writes its page there and names it. What fails is a warning.
void report(const std::string& note, const Outcome& outcome, ReportWishes wishes, bool is_head, std::ostream& out) {
  const std::filesystem::path folder = folder_of(note);
  if (folder.empty()) return;
  try {
    const int launcher = is_head ? 0 : ::getpid();  // rank 0 may be that of another launcher
    if (!note_end(folder, launcher, outcome.exit_code, outcome.sentence, outcome.numbers) || !wishes.has_page) return;
    const std::string page = (folder / kReportFile).string();
    if (const std::string problem = write_report(folder); !problem.empty())
      print_sentence("warning: '" + page + "' was not written: " + problem);
    else if (!wishes.is_quiet && is_writable(STDOUT_FILENO, std::chrono::seconds(1)))
      out << "page: " << shown_text(shown_path(page)) << '\n' << std::flush;
    out.clear();  // a reader that has ended costs the run nothing
  } catch (const std::exception& error) {
    print_sentence("warning: the end of the run is not noted in its folder: " + sentence_of(error));
  }
}

// For a person who has just installed the program.
void say_first_steps() {
  const auto of = [](const char* section) { return default_options()[section]["plugin"].get<std::string>(); };
  print_sentence("nothing is given, so this trains an example: model " + of("model") + " with strategy " +
                 of("strategy") + "; `ddhost list` shows the other plugins, `ddhost help` the commands");
}

void say_notes(const CommandLine& line, const std::vector<std::string>& notes) {
  if (line.is_bare) say_first_steps();
  for (const std::vector<std::string>& sentences : {notes, line.unused})
    for (const std::string& note : sentences) print_sentence(note);
}

// The command line of a run that starts again after a failure. One that has begun with --resume PATH takes that checkpoint if
// it has none of its own (prepare).
void prepare_restart(const std::filesystem::path& folder, const Config& host, bool has_other_launchers,
                     CommandLine& next) {
  const char* const source = "launch.max_restarts";
  const bool in_hosts = has_other_launchers && host.get<int64_t>("checkpoint.memory_every") > 0;
  const std::string& resume = host.text("run.resume");
  const std::vector<CheckpointPlace> places = resumable_checkpoints(folder);
  const bool has_checkpoint = !places.empty(), begins_anew = resume == "none" || resume == "auto";
  if (!folder.empty()) next.overrides.push_back({"run.dir", folder.string(), source});
  if (has_checkpoint || begins_anew) next.overrides.push_back({"run.resume", "auto", source});
  const std::string first = begins_anew ? "the beginning" : "the checkpoint of --resume";
  print_sentence(
      ddh::str("restart ", next.restarts, " of ", host.get<int64_t>("launch.max_restarts"),
               " (launch.max_restarts): the ranks start again from ",
               in_hosts && has_checkpoint ? "the newest checkpoint, in the memory of the hosts or on the disk"
               : in_hosts        ? "a checkpoint in the memory of the hosts, or if there is none, from " + first
               : !has_checkpoint ? first + ", because there is no checkpoint yet"
               : places.front().folder.parent_path() == checkpoints_folder(folder) ? "the newest checkpoint"
                                                                                   : "the checkpoint in memory",
               has_checkpoint && !in_hosts ? ddh::str(", of step ", places.front().step) : ""));
}

// Where the hosts of a run that is to start again do not come together.
void say_what_stays(const CommandLine& line, const Config& host) {
  if (line.restarts == 0 || line.agent_order || host.get<int64_t>("checkpoint.memory_every") == 0) return;
  print_sentence(
      ddh::str("the run has not started again; its hosts keep their parts of checkpoints in memory, and the same ",
               "command with --resume auto run.dir=", host.text("run.dir"), " goes on from them"));
}

// The page of a training, or none. It stays the same where the ranks start again.
void open_page(const CommandLine& line, const Config& host, const Cluster* cluster, std::unique_ptr<LivePage>& page) {
  const std::string& address = host.text("monitor.page");
  const bool is_head = cluster == nullptr || cluster->is_head();
  if (address.empty()) return;
  static_cast<void>(parse_page_address(address));  // a bad one is refused also where there will be no page
  if (page != nullptr || !is_head || line.dry_run || line.command != Command::kTrain) return;
  page = std::make_unique<LivePage>(address);
  print_sentence("the page of this run: " + page->url());
}

// Of a run that lacks memory: with --fit the command line of the run that starts instead. Otherwise the outcome names the
// changes that fit.
std::optional<CommandLine> changed_to_fit(const CommandLine& line, Registry& registry, const RunPlace& place,
                                          Outcome& outcome) {
  const TriedChanges tried = changes_that_fit({line, registry, place}, *outcome.shortage);
  if (!line.fit || tried.changes.empty()) {
    outcome.sentence += changes_text(tried);
    if (tried.end.exit_code > 1) outcome.exit_code = tried.end.exit_code;  // a signal
    return std::nullopt;
  }
  print_sentence(outcome.sentence);
  const MemoryChange& change = tried.changes.front();
  print_sentence("--fit: the run starts with " + change.text());
  CommandLine changed = line;
  changed.fit = false;
  changed.overrides.insert(changed.overrides.end(), change.overrides.begin(), change.overrides.end());
  return changed;
}

// What is kept from a run that failed to the one that starts again.
struct Kept {
  std::unique_ptr<LivePage> page;
  std::shared_ptr<RemoteAgents> agents;  // of other hosts, if all of them wait for an order
};

void leave_out_lost_hosts(const UserConfig& user, const Config& host, const Registry& registry, CommandLine& next) {
  try {
    for (Override& more : without_lost_hosts(user, host, registry)) next.overrides.push_back(std::move(more));
  } catch (...) {
    say_what_stays(next, host);
    throw;
  }
}

// The command line with which the ranks start again after a failure; nullopt: an agent gets no further order. Takes the agents
// that wait for one.
std::optional<CommandLine> line_of_restart(const CommandLine& line, const UserConfig& user, const Config& host,
                                           const Registry& registry, const LoaderRecord& record, const Outcome& outcome,
                                           std::unique_ptr<Cluster> cluster, Kept& kept) {
  const bool is_head = cluster == nullptr || cluster->is_head(), has_others = cluster != nullptr;
  kept.agents = has_others ? cluster->waiting_agents() : nullptr;
  cluster.reset();
  if (line.agent_order) return next_order(line, time_of(host, "launch.timeout"));
  CommandLine next = line;
  ++next.restarts;
  if (!is_head) return next;
  print_sentence(outcome.sentence);
  prepare_restart(folder_of(record.folder()), host, has_others, next);
  if (kept.agents == nullptr) leave_out_lost_hosts(user, host, registry, next);
  return next;
}

// An agent that waited for an order may be gone: then all agents are started anew, on the hosts that are left.
CommandLine line_without_agents(const CommandLine& line, const UserConfig& user, const Config& host,
                                const Registry& registry, const std::exception& problem, Kept& kept) {
  kept.agents = nullptr;
  print_sentence(sentence_of(problem) + "; so the agents of all hosts are started anew");
  CommandLine next = line;
  leave_out_lost_hosts(user, host, registry, next);
  return next;
}

int run_once(const CommandLine& line, Registry& registry, std::ostream& out, Kept& kept) {
  auto [user, notes] = read_user_files(line, line.overrides, registry);
  const std::vector<std::string> replaced = replace_excluded_options(user);
  const Config host(user, run_sections(user), /*plugin_sections=*/false);
  std::unique_ptr<Cluster> cluster;
  if (line.fit && !line.agent_order && has_cluster(line, host, registry)) {
    print_sentence(
        "--fit changes only runs that one launcher starts on one host; leave it out, and give a change that "
        "`ddhost plan --all-strategies` with the same options shows to fit");
    return 2;
  }
  try {
    if (!line.dry_run)
      cluster = join_cluster(line, user, host, registry, kept.agents);
    else if (is_further_task(host, registry))
      return 0;
  } catch (const ddh::Error& problem) {
    if (kept.agents != nullptr)
      return run_once(line_without_agents(line, user, host, registry, problem, kept), registry, out, kept);
    say_what_stays(line, host);
    throw;
  } catch (...) {
    say_what_stays(line, host);
    throw;
  }
  if (cluster == nullptr || cluster->is_head()) say_notes(line, notes);
  open_page(line, host, cluster.get(), kept.page);
  RunPlace place = choose_place(user, registry, cluster.get());
  if (line.dry_run) place_on_hosts(host, place);
  LoaderRecord record;
  const Request request{line, user, replaced, place, cluster.get()};
  LaunchArgs args = launch_args(line.command, host, place.world_size, cluster.get());
  args.companion = kept.page.get();
  args.may_restart = line.command == Command::kTrain && line.restarts < host.get<int64_t>("launch.max_restarts");
  args.is_restart = line.restarts > 0;
  const auto conclude = [&](const Outcome& end) {
    if (cluster != nullptr && !end.again && !end.sentence.empty()) print_sentence(end.sentence);
    clean_up_folder(record.folder(), end.exit_code != 0);
    if (!end.again)
      if (const std::string what_stays = end_memory(record.folder(), end, cluster == nullptr ? 0 : cluster->run_id());
          !what_stays.empty())
        print_sentence(what_stays);
    const bool is_head = cluster != nullptr && cluster->is_head();
    report(record.folder(), end, {host.get<bool>("run.report") && !end.again, host.get<bool>("run.quiet")}, is_head,
           out);
  };
  args.before_others_end = conclude;
  Outcome outcome = launch(
      args, [&](LoaderRecord& of_loader) { return prepare(request, registry, of_loader, out); }, record);
  if (cluster == nullptr || !cluster->is_head()) conclude(outcome);
  if (outcome.again) {
    const std::optional<CommandLine> next =
        line_of_restart(line, user, host, registry, record, outcome, std::move(cluster), kept);
    return next ? run_once(*next, registry, out, kept) : outcome.exit_code;
  }
  if (outcome.shortage && outcome.exit_code == 1 && cluster == nullptr)
    if (const std::optional<CommandLine> changed = changed_to_fit(line, registry, place, outcome))
      return run_once(*changed, registry, out, kept);
  if (line.dry_run && outcome.sentence == kStdoutFailed) throw OutputError();
  if (cluster == nullptr && !outcome.sentence.empty()) print_sentence(outcome.sentence);
  return outcome.exit_code;
}

}  // namespace

int run_model(const CommandLine& line, Registry& registry, std::ostream& out) {
  Kept kept;
  int exit_code = 0;
  try {
    exit_code = run_once(line, registry, out, kept);
  } catch (const JoinEnded& ended) {
    exit_code = 128 + ended.signal;
  }
  if (kept.page != nullptr) kept.page->show_end();
  return exit_code;
}

}  // namespace ddhost
