// SPDX-License-Identifier: Apache-2.0
//
// launch/launch.cpp: the processes of a run. The launcher forks the loader, which loads the plugins, forks the ranks and
// ends; then the ranks are children of the launcher. Ranks that are threads stay in the loader.
#include "launch/launch.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <limits>
#include <thread>

#include "base/text.hpp"
#include "ddh/sdk/memory/free_memory.hpp"
#include "ddh/sdk/plugin.hpp"
#include "launch/exit_guard.hpp"
#include "launch/mapped_path.hpp"
#include "launch/signals.hpp"
#include "launch/supervisor.hpp"
#include "launch/threads.hpp"

namespace ddhost {
namespace {

void flush_output() {
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
}

// Reports a file that was cut short while it was mapped. Signal handlers have no argument, so the rank is static.
struct BusErrorReport {
  static void install(Progress& progress, int rank) {
    state() = {&progress, rank};
    struct sigaction mine {};
    mine.sa_sigaction = &BusErrorReport::handle;
    mine.sa_flags = static_cast<int>(SA_SIGINFO | SA_RESETHAND);
    ::sigaction(SIGBUS, &mine, nullptr);
  }

 private:
  struct State {
    Progress* progress;
    int rank;
  };
  static State& state() {
    static State state{};
    return state;
  }
  static void handle(int, siginfo_t* info, void*) {
    std::array<char, 3072> sentence{};
    if (!write_cut_file(*info, sentence.data(), sentence.size()))
      return;  // the access is repeated, and ends the process
    state().progress->set_failure(state().rank, sentence.data(), false);
    ::_exit(1);
  }
};

// What the loader and the ranks know of the run. The launcher made it before it forked the loader.
struct Start {
  const LaunchArgs& args;
  const Prepare& prepare;
  LoaderRecord& record;
  Progress& progress;
  OutputRelay& output;
  pid_t launcher;
  uint64_t run_id;
};

// Until the loader has started all ranks and ended, and the launcher is this rank's parent.
void await_launcher(const Start& start, pid_t loader) {
  while (::getppid() == loader) std::this_thread::sleep_for(std::chrono::microseconds(200));
  // If the launcher is killed, its ranks are killed too, even if it died before this line.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != start.launcher || start.record.state() != LoaderRecord::State::kRanksAreOthers) ::_exit(1);
}

[[noreturn]] void rank_process(const Start& start, int rank, const RankFunction& rank_function, pid_t loader,
                               Fd socket) {
  await_launcher(start, loader);
  hand_on_termination();
  Progress& progress = start.progress;
  KvClient kv(std::move(socket));
  ProgressOfRank record(progress, rank);
  RankSeat seat = make_seat(start.args, rank, kv, record, start.run_id);
  progress.lane(rank).set_thread(::gettid());
  BusErrorReport::install(progress, rank);
  const RankFunction with_output = [&](RankSeat& of_rank) {
    start.output.take(rank);
    return rank_function(of_rank);
  };
  const int rc = run_seat(with_output, seat, progress);
  flush_output();
  ::_exit(rc);
}

// The sockets of ranks that are processes. Ranks that are threads need none, so a lack of descriptors is no failure yet.
struct Sockets {
  std::vector<Fd> servers, clients;
  std::string problem;

  explicit Sockets(const LaunchArgs& args) {
    try {
      const int ranks = args.ranks_here().count;
      if (args.cluster != nullptr && !args.cluster->is_head()) {  // the store is the head's
        clients = args.cluster->store_sockets(ranks);
        args.cluster->set_loader_socket(std::move(args.cluster->store_sockets(1).front()));
        return;
      }
      for (int rank = 0; rank < ranks; ++rank) {
        SocketPair pair = make_socket_pair();
        servers.push_back(std::move(pair.server));
        clients.push_back(std::move(pair.client));
      }
      if (args.cluster == nullptr) return;
      SocketPair pair = make_socket_pair();
      servers.push_back(std::move(pair.server));
      args.cluster->set_loader_socket(std::move(pair.client));
    } catch (const ddh::Error& error) {
      if (args.cluster != nullptr) throw;
      problem = error.what();
      servers.clear();
      clients.clear();
    }
  }
};

void start_processes(const Start& start, const RankFunction& rank_function, Sockets& sockets) {
  const RankRange ranks = start.args.ranks_here();
  require_memory_of_processes(ranks.count, ddh::free_memory());
  if (!sockets.problem.empty()) ddh::fail(DDH_RESOURCE_EXHAUSTED, sockets.problem);
  const pid_t loader = ::getpid();
  for (int rank = ranks.first; rank < ranks.end(); ++rank) {
    flush_output();
    const pid_t pid = ::fork();
    if (pid < 0)
      ddh::fail(DDH_RESOURCE_EXHAUSTED, "can't start a process for rank ", rank, ": ", std::strerror(errno),
                "; start fewer ranks");
    if (pid == 0) {
      Fd mine = std::move(sockets.clients[static_cast<size_t>(rank - ranks.first)]);
      sockets.clients.clear();
      rank_process(start, rank, rank_function, loader, std::move(mine));
    }
    start.progress.set_process(rank, pid);
  }
}

// What the loader is doing, for a signal handler.
struct LoaderPlace {
  static bool describe(const void* record, char* text, size_t capacity) {
    static_cast<const LoaderRecord*>(record)->write_loading(text, capacity);
    if (*text != '\0') return true;
    std::strncpy(text, "the run was being prepared", capacity - 1);
    return false;
  }
  static void report(const void* record, const char* sentence) {
    const_cast<LoaderRecord*>(static_cast<const LoaderRecord*>(record))->set_failure(sentence);
  }
};

Prepared prepared(const Start& start) {
  const ExitGuard guard(&LoaderPlace::describe, &LoaderPlace::report, &start.record);
  return start.prepare(start.record);
}

// Returns the exit code of the loader.
int load_and_start(const Start& start, Sockets& sockets) {
  try {
    const Prepared run = prepared(start);
    start.record.set_libraries(run.libraries);
    if (!run.rank_function) {
      start.record.end(0);
    } else if (run.threads) {
      sockets.clients.clear();
      hand_on_termination();
      start.record.set_state(LoaderRecord::State::kRanksAreHere);
      return run_threads(start.args, run.rank_function, start.progress, start.record, start.run_id);
    } else {
      start_processes(start, run.rank_function, sockets);
      start.record.set_state(LoaderRecord::State::kRanksAreOthers);
      while (start.args.ranks_here().count == 0) ::pause();  // it holds the lock of the run's folder
      ::_exit(0);                                            // without the destructors of what the ranks use
    }
    return 0;
  } catch (const LacksMemory& refused) {
    start.progress.set_shortage(refused.shortage());
    start.record.set_failure(plain_text(refused.what()));
    start.record.end(1);
    return 1;
  } catch (const std::exception& error) {
    start.record.set_failure(plain_text(sentence_of(error)));
    start.record.end(1);
    return 1;
  }
}

[[noreturn]] void loader_process(const Start& start, SignalWatch& signals, Sockets& sockets) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != start.launcher) ::_exit(1);
  signals.leave_to_launcher();
  const int rc = load_and_start(start, sockets);
  flush_output();
  ::_exit(rc);
}

// While it lives, orphaned descendants become children of this process.
class AdoptsOrphans {
 public:
  AdoptsOrphans() {
    if (::prctl(PR_GET_CHILD_SUBREAPER, &before_) != 0 || ::prctl(PR_SET_CHILD_SUBREAPER, 1UL) != 0)
      ddh::fail(DDH_FAILED_PRECONDITION,
                "the launcher can't become the parent of the ranks (PR_SET_CHILD_SUBREAPER): ", std::strerror(errno),
                "; run it where the kernel allows this");
  }
  AdoptsOrphans(const AdoptsOrphans&) = delete;
  AdoptsOrphans& operator=(const AdoptsOrphans&) = delete;
  ~AdoptsOrphans() { ::prctl(PR_SET_CHILD_SUBREAPER, static_cast<unsigned long>(before_)); }

 private:
  int before_ = 0;
};

class CompanionRuns {
 public:
  CompanionRuns(Companion* companion, const RunView& run) : companion_(companion) {
    if (companion_ != nullptr) companion_->begin(run);
  }
  CompanionRuns(const CompanionRuns&) = delete;
  CompanionRuns& operator=(const CompanionRuns&) = delete;
  ~CompanionRuns() {
    if (companion_ != nullptr) companion_->end();
  }

 private:
  Companion* companion_;
};

}  // namespace

Outcome launch(const LaunchArgs& args, const Prepare& prepare, LoaderRecord& record) {
  if (args.world_size < 1)
    ddh::fail(DDH_INVALID_ARGUMENT, "a run can't have ", args.world_size, " ranks; start at least 1");
  // Before there are sockets: in its process they would stay open.
  OutputRelay output(args.named_output, [&] {
    if (args.cluster != nullptr) args.cluster->forget();
    if (args.companion != nullptr) args.companion->forget_in_child();
  });
  LaunchArgs own = args;  // what the ranks have written comes before the verdict
  own.before_others_end = [&](const Outcome& end) {
    output.finish();
    if (args.before_others_end) args.before_others_end(end);
  };
  Progress progress(args.world_size);
  const uint64_t run_id = args.cluster != nullptr ? args.cluster->run_id() : make_run_id();
  const Start start{args, prepare, record, progress, output, ::getpid(), run_id};
  Sockets sockets(args);
  const AdoptsOrphans adopts_orphans;
  SignalWatch signals;
  Supervisor supervisor(own, progress, record, signals, std::move(sockets.servers));
  flush_output();
  const pid_t pid = ::fork();
  if (pid < 0)
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "can't start a process that loads the plugins: ", std::strerror(errno),
              "; close other programs");
  if (pid == 0) {
    supervisor.forget_in_child();
    if (args.companion != nullptr) args.companion->forget_in_child();
    loader_process(start, signals, sockets);
  }
  output.close_pipes();
  supervisor.set_loader(pid);
  sockets.clients.clear();
  const CompanionRuns companion_runs(args.companion, {record, progress, args.ranks_here(), pid});
  Outcome outcome = supervisor.run();
  output.finish();
  outcome.shortage = progress.shortage();
  return outcome;
}

Outcome launch(const LaunchArgs& args, const RankFunction& rank_function) {
  LoaderRecord record;
  return launch(
      args,
      [&](LoaderRecord&) {
        return Prepared{args.threads, {}, rank_function};
      },
      record);
}

void require_memory_of_processes(int world_size, const ddh::FreeMemory& free) {
  // For its process and its part of the transport; measured are 5 MiB, and 16 MiB where the loader has LibTorch. The plan of a
  // training counts the rest, with a reserve (engine/loop/memory_plan.hpp).
  constexpr uint64_t kMiB = uint64_t{1} << 20, kRankBytes = 32 * kMiB;
  const uint64_t needed = static_cast<uint64_t>(world_size) * kRankBytes;
  if (needed <= free.bytes) return;
  ddh::fail(DDH_RESOURCE_EXHAUSTED, world_size, " ranks need more than ", needed / kMiB,
            " MiB of memory before they load a model, but ", free.of, " has ", free.bytes / kMiB,
            " MiB left; start fewer ranks");
}

}  // namespace ddhost
