// SPDX-License-Identifier: Apache-2.0
//
// launch/launch.cpp: ranks as processes. One loop of the launcher serves the store, notices the end of ranks and the
// user's signals, and leaves only when every rank has been waited for.
#include "launch/launch.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <limits>
#include <optional>

#include "ddh/sdk/plugin.hpp"
#include "launch/kv_socket.hpp"
#include "launch/mapped_path.hpp"
#include "launch/signals.hpp"
#include "launch/threads.hpp"
#include "launch/used_files.hpp"
#include "launch/verdict.hpp"

namespace ddhost {
namespace {

using Clock = std::chrono::steady_clock;

struct Child {
  pid_t pid = 0;
  bool running = false;
};

void flush_output() {
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
}

std::string signal_text(int number) { return ddh::str("signal ", number, " (", ::strsignal(number), ")"); }

// Signals that a process causes by its own error.
bool is_fault(int number) {
  return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL || number == SIGABRT;
}

class Supervisor {
 public:
  Supervisor(const LaunchArgs& args, Progress& progress, SignalWatch& signals, std::vector<Fd> sockets)
      : args_(args),
        progress_(progress),
        signals_(signals),
        kv_(std::move(sockets)),
        watchdog_(progress, args.world_size, args.watchdog),
        memory_kills_(args.cgroups),
        libraries_(args.libraries) {}
  // Ensures that all ranks have ended, also after an exception.
  ~Supervisor() {
    kill_all();
    for (Child& child : children_)
      if (child.running) ::waitpid(child.pid, nullptr, 0);
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  void add(pid_t pid) { children_.push_back({pid, true}); }
  // A forked rank inherits this object, but its sockets and processes belong to the launcher.
  void forget_in_rank() {
    children_.clear();
    kv_ = KvServer({});
  }

  Outcome run() {
    reap();
    while (std::any_of(children_.begin(), children_.end(), [](const Child& c) { return c.running; })) {
      wait_for_news();
      watch();
      if (deadline_ && Clock::now() >= *deadline_) {
        end_.killed_after_stop = end_.stop_signal != 0;
        kill_all();
        deadline_.reset();
      }
    }
    return verdict(end_, progress_, args_.world_size);
  }

 private:
  void wait_for_news() {
    std::vector<pollfd> set = kv_.poll_set();
    set.push_back({signals_.fd(), POLLIN, 0});
    int timeout = kv_.timeout_ms();
    const auto at_most = [&timeout](std::chrono::milliseconds limit) {
      const int mine = static_cast<int>(std::max<int64_t>(limit.count(), 0));
      timeout = timeout < 0 ? mine : std::min(timeout, mine);
    };
    if (deadline_) at_most(std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now()));
    if (watchdog_.interval()) at_most(*watchdog_.interval());
    if (::poll(set.data(), set.size(), timeout) < 0) {
      if (errno == EINTR) return;
      ddh::fail(DDH_INTERNAL, "the launcher can't wait for its ranks: ", std::strerror(errno));
    }
    set.pop_back();
    kv_.serve(set);
    for (const SignalWatch::Signal& signal : signals_.take()) {
      if (signal.number == SIGUSR1)
        progress_.request_save();
      else if (signal.number != SIGCHLD)
        stop(signal);
    }
    reap();
  }

  void stop(const SignalWatch::Signal& signal) {
    const bool is_first = end_.stop_signal == 0;
    const auto sent_it = [&](const Child& child) { return child.pid == signal.sender; };
    const bool handed_on = signal.number == SIGTERM && std::any_of(children_.begin(), children_.end(), sent_it);
    if (handed_on && !is_first) return;  // the same signal, delayed
    note_stop(end_, signal.number, progress_, args_.echo);
    if (is_first && args_.stop_limit) set_deadline(*args_.stop_limit);
    if (end_.killed_by_signal) kill_all();
  }

  void reap() {
    for (size_t r = 0; r < children_.size(); ++r) {
      Child& child = children_[r];
      const int rank = static_cast<int>(r);
      int status = 0;
      while (child.running && ::waitpid(child.pid, &status, WNOHANG | WUNTRACED | WCONTINUED) == child.pid) {
        if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
          watchdog_.set_state(rank, WIFSTOPPED(status) ? Watchdog::RankState::kStopped : Watchdog::RankState::kRunning);
          continue;
        }
        child.running = false;
        watchdog_.set_state(rank, Watchdog::RankState::kEnded);
        if (status != 0 || !progress_.is_complete(rank)) failed(rank, status);
      }
    }
  }

  void watch() {
    if (end_.failed || killing_ || !note_watchdog(end_, watchdog_)) return;
    kv_.abort("the watchdog has ended the run");
    set_deadline(std::chrono::milliseconds{0});
  }

  void failed(int rank, int status) {
    end_.failed = true;
    if (!killing_ && end_.death.empty() && !has_own_failure(progress_, args_.world_size)) {
      const std::string who = ddh::str("rank ", rank, " (pid ", children_[static_cast<size_t>(rank)].pid, ")");
      const std::string where = places(rank);
      const std::string end = ddh::str(" at step ", progress_.step(rank), "; the run has ended");
      const std::optional<std::string> no_memory =
          WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? memory_kills_.reason() : std::nullopt;
      if (no_memory)
        end_.death = out_of_memory(who, *no_memory, where + end);
      else if (WIFSIGNALED(status))
        end_.death =
            who + " was killed by " + signal_text(WTERMSIG(status)) + where + end +
            (is_fault(WTERMSIG(status)) ? cure(!where.empty()) : "") +
            (WTERMSIG(status) == SIGKILL ? "; if the system ran out of memory, use fewer ranks or a smaller batch"
                                         : "");
      else if (WEXITSTATUS(status) == 0)
        end_.death = who + " ended without finishing the run (exit code 0)" + where + end +
                     "; a plugin must not end the process, fix it";
      else if (progress_.failure(rank).order == 0)
        end_.death = ddh::str(who, " ended with exit code ", WEXITSTATUS(status), " and no reason", where, end);
    }
    kv_.abort(ddh::str("rank ", rank, " has ended with an error"));
    set_deadline(args_.grace);
  }

  [[nodiscard]] std::string out_of_memory(const std::string& who, const std::string& why,
                                          const std::string& where) const {
    const std::string plan = progress_.plan();
    return ddh::str("the kernel ended ", who, " for lack of memory (", why, ")", where,
                    "; raise the limit, or use fewer ranks, a smaller data.micro_batch, train.recompute or a strategy "
                    "that shards more",
                    plan.empty() ? "" : "\n", plan.substr(0, plan.size() - (plan.ends_with('\n') ? 1 : 0)));
  }

  // How to avoid a fault of a rank.
  [[nodiscard]] std::string cure(bool in_plugin) const {
    const std::string overwritten = libraries_.overwritten();
    if (!overwritten.empty())
      return "; '" + overwritten + "' was overwritten while the run used it: write new versions of a plugin under " +
             "another name and rename them, and start the run again";
    return in_plugin ? "; fix the plugin" : "";
  }

  // " in step of strategy 'x'". The thread that ended the rank is not known.
  [[nodiscard]] std::string places(int rank) const {
    std::string text = progress_.place(rank);
    for (size_t i = 0; i < kDataThreads; ++i) {
      const std::string data = progress_.place(rank, data_thread(i));
      if (!data.empty()) text += ddh::str(text.empty() ? "" : ", its data thread in ", data);
    }
    return text.empty() ? "" : " in " + text;
  }

  void set_deadline(std::chrono::milliseconds from_now) {
    const auto candidate = Clock::now() + from_now;
    if (!deadline_ || candidate < *deadline_) deadline_ = candidate;
  }

  void kill_all() {
    killing_ = true;
    for (const Child& child : children_)
      if (child.running) ::kill(child.pid, SIGKILL);
  }

  const LaunchArgs& args_;
  Progress& progress_;
  SignalWatch& signals_;
  KvServer kv_;
  Watchdog watchdog_;
  const MemoryKills memory_kills_;
  const UsedFiles libraries_;
  std::vector<Child> children_;
  RunEnd end_;
  bool killing_ = false;
  std::optional<Clock::time_point> deadline_;
};

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

[[noreturn]] void rank_process(const LaunchArgs& args, int rank, const RankFunction& rank_function, pid_t launcher,
                               SignalWatch& signals, Fd socket, Progress& progress, uint64_t run_id) {
  // If the launcher is killed, its ranks are killed too, even if it died before this line.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(1);
  signals.leave_to_launcher();
  KvClient kv(std::move(socket));
  ProgressOfRank record(progress, rank);
  RankSeat seat = make_seat(args, rank, kv, record, run_id);
  progress.lane(rank).set_thread(::gettid());
  BusErrorReport::install(progress, rank);
  const int rc = run_seat(rank_function, seat, progress);
  flush_output();
  ::_exit(rc);
}

// The memory that is available without swapping; no limit if the kernel does not report it.
uint64_t available_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string name, unit; meminfo >> name;) {
    uint64_t kib = 0;
    if (name == "MemAvailable:" && meminfo >> kib) return kib * 1024;
    std::getline(meminfo, unit);
  }
  return std::numeric_limits<uint64_t>::max();
}

Outcome launch_processes(const LaunchArgs& args, const RankFunction& rank_function) {
  require_memory_of_processes(args.world_size, available_bytes());
  Progress progress(args.world_size);
  const uint64_t run_id = make_run_id();
  std::vector<Fd> servers, clients;
  for (int rank = 0; rank < args.world_size; ++rank) {
    SocketPair pair = make_socket_pair();
    servers.push_back(std::move(pair.server));
    clients.push_back(std::move(pair.client));
  }
  SignalWatch signals;
  Supervisor supervisor(args, progress, signals, std::move(servers));
  const pid_t launcher = ::getpid();
  for (int rank = 0; rank < args.world_size; ++rank) {
    flush_output();
    const pid_t pid = ::fork();
    if (pid < 0)
      ddh::fail(DDH_RESOURCE_EXHAUSTED, "can't start a process for rank ", rank, ": ", std::strerror(errno),
                "; start fewer ranks");
    if (pid == 0) {
      Fd mine = std::move(clients[static_cast<size_t>(rank)]);
      clients.clear();
      supervisor.forget_in_rank();
      rank_process(args, rank, rank_function, launcher, signals, std::move(mine), progress, run_id);
    }
    supervisor.add(pid);
  }
  clients.clear();
  return supervisor.run();
}

}  // namespace

Outcome launch(const LaunchArgs& args, const RankFunction& rank_function) {
  if (args.world_size < 1)
    ddh::fail(DDH_INVALID_ARGUMENT, "a run can't have ", args.world_size, " ranks; start at least 1");
  return args.threads ? launch_threads(args, rank_function) : launch_processes(args, rank_function);
}

void require_memory_of_processes(int world_size, uint64_t available_bytes) {
  constexpr uint64_t kMiB = uint64_t{1} << 20,
                     kRankBytes = 32 * kMiB;  // a rank with a small LibTorch model takes about 95 MiB
  const uint64_t needed = static_cast<uint64_t>(world_size) * kRankBytes;
  if (needed <= available_bytes) return;
  ddh::fail(DDH_RESOURCE_EXHAUSTED, world_size, " ranks need more than ", needed / kMiB,
            " MiB of memory before they load a model, but ", available_bytes / kMiB,
            " MiB are available; start fewer ranks");
}

}  // namespace ddhost
