// SPDX-License-Identifier: Apache-2.0
//
// ddhost: trains a model on several ranks. Reads as the list of its steps; each lives in the folder of its name.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <iostream>

#include "cli/command_line.hpp"
#include "cli/load_guard.hpp"
#include "cli/prepare.hpp"
#include "ddh/sdk/plugin.hpp"
#include "device/cpu/device.hpp"
#include "engine/loop/rank.hpp"
#include "engine/services/interfaces.hpp"
#include "launch/launch.hpp"
#include "plugin/commands.hpp"

namespace {

using namespace ddhost;

int train(const CommandLine& line, Registry& registry) {
  const UserConfig user = UserConfig::read(line.config_file, line.overrides);
  const int world_size = wanted_world_size(user);
  share_cores(world_size);
  RunPlan plan = make_plan(user, registry, world_size);
  for (const std::string& warning : registry.warnings()) print_sentence("warning: " + warning);
  for (const std::string& warning : plan.config.warnings()) print_sentence("warning: " + warning);
  if (line.dry_run) {
    std::cout << plan.config.effective().dump(2) << '\n';
    return 0;
  }
  make_run_folder(plan);
  LaunchArgs args{plan.world_size, plan.ranks_per_node, plan.ranks_are_threads};
  args.watchdog = watchdog_limits(plan.config);
  const Outcome outcome = launch(args, [&plan](const RankSeat& seat) { return run_rank(plan, seat); });
  if (!outcome.sentence.empty()) print_sentence(outcome.sentence);
  if (outcome.exit_code != 0) leave_unused_folder(plan);
  return outcome.exit_code;
}

// Failures of writing are error codes where they happen, and no file of ours ever takes the number of stdout.
void prepare_process() {
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_IGN);
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) return;
}

int flushed(int exit_code) {
  if (exit_code != 0 || std::cout.flush()) return exit_code;
  print_sentence("stdout can't be written; its reader is gone or its disk is full");
  return 1;
}

int run_command(const CommandLine& line) {
  Registry registry(&host_interface, executable_folder(), {&cpu::device_module()});
  switch (line.command) {
    case Command::kList:
      return list_plugins(registry, std::cout);
    case Command::kInspect:
      return inspect_plugin(registry, line.inspect_file, std::cout);
    case Command::kTrain:
      break;
  }
  return train(line, registry);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    prepare_process();
    return flushed(run_command(parse_command_line(argc, argv)));
  } catch (const ddhost::CommandLineExit& end) {
    return end.code;
  } catch (const std::exception& error) {
    ddhost::print_sentence(error.what());
    return 1;
  }
}
