// SPDX-License-Identifier: Apache-2.0
//
// ddhost: trains a model on several ranks. main parses the command line and runs the command; cli/ has the commands.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <iostream>
#include <string_view>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/user_files.hpp"
#include "cli/words/command_line.hpp"
#include "cli/words/known_options.hpp"
#include "ddh/sdk/plugin.hpp"
#include "engine/services/tables/interfaces.hpp"
#include "launch/launch.hpp"
#include "plugin/linked.hpp"

namespace {

using namespace ddhost;

// Write errors are reported as error codes, and no file of ours gets the descriptor of stdout. Writing to a stdout that is
// closed is an error, so it is replaced by a file that can't be written to.
void prepare_process() {
  sigset_t saves;  // a request for a checkpoint waits until the run takes signals
  sigemptyset(&saves);
  sigaddset(&saves, SIGUSR1);
  ::sigprocmask(SIG_BLOCK, &saves, nullptr);
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_IGN);
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR) < 0) return;
}

// Whether nobody reads stdout any more: `ddhost runs show X | head`.
bool has_reader_ended() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

// The exit code after an output that can't be written: that of other programs if its reader has ended.
int output_failed() {
  if (has_reader_ended()) return 128 + SIGPIPE;
  print_sentence(kStdoutFailed);
  return 1;
}

int flushed(int exit_code) { return exit_code != 0 || std::cout.flush() ? exit_code : output_failed(); }

int run_command(const CommandLine& line) {
  Registry registry(&host_interface, executable_folder(), linked_plugins());
  const bool logs =
      line.command == Command::kTrain || line.command == Command::kEval || line.command == Command::kGenerate;
  if (!logs)
    for (const std::string& sentence : line.unused) print_sentence(sentence);
  switch (line.command) {
    case Command::kList:
      return list_plugins(registry, std::cout, line.list_kind, line.json);
    case Command::kInspect:
      if (line.markdown) return print_options_page(registry, line.inspect_files, std::cout);
      return inspect_plugin(registry, line.inspect_files.front(), std::cout, line.json);
    case Command::kExplain:
      return explain(registry, line.explained, line.json, std::cout);
    case Command::kCompletion:
      return print_completion(registry, line.completion, std::cout);
    case Command::kCkpt:
      return inspect_checkpoints(line.ckpt, registry, std::cout);
    case Command::kExport:
      return export_weights(line.exporting, std::cout);
    case Command::kCompare:
      return compare_strategies(line, registry, std::cout);
    case Command::kTune:
      return tune_run(line, std::cout);
    case Command::kSmoke:
      return smoke_run(line, std::cout);
    case Command::kPeek:
      return peek_data(line, registry);
    case Command::kRuns:
      return runs_command(line.runs, std::cout);
    case Command::kConvert:
      return convert_file(line, registry, std::cout);
    case Command::kPlan:
      return plan_run(line, registry, std::cout);
    case Command::kDoctor:
      return examine_hosts(line, registry, std::cout);
    case Command::kBatch:
      return print_batch_script(line, registry, std::cout);
    case Command::kAnswer:
      return answer_as_agent(line, registry, std::cin, std::cout);
    case Command::kTrain:
    case Command::kEval:
    case Command::kGenerate:
      break;
  }
  return run_model(line, registry, std::cout);
}

// Ends the process without the destructors of libraries, because a plugin's destructor could hang or change the exit
// code.
[[noreturn]] void end_process(int exit_code) {
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(exit_code);
}

int run(int argc, char** argv) {
  try {
    prepare_process();
    const auto kind_of = [](const std::string& name) {
      return kind_of_plugin(Registry(&host_interface, executable_folder(), linked_plugins()), name);
    };
    const bool is_agent = argc == 2 && std::string_view(argv[1]) == "agent";
    return flushed(run_command(is_agent ? agent_command_line(std::cin) : parse_command_line(argc, argv, kind_of)));
  } catch (const ddhost::CommandLineExit& end) {
    return flushed(end.code);
  } catch (const ddhost::JoinEnded& ended) {
    return 128 + ended.signal;
  } catch (const ddhost::OutputError&) {
    return output_failed();
  } catch (const ddhost::ForeignFileError& error) {
    print_sentence(sentence_of(error));
    return 2;
  } catch (const std::exception& error) {
    print_sentence(sentence_of(error));
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) { end_process(run(argc, argv)); }
