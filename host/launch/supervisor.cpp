// SPDX-License-Identifier: Apache-2.0
#include "launch/supervisor.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "ddh/sdk/plugin.hpp"
#include "launch/rank_numbers.hpp"

namespace ddhost {
namespace {

using SteadyClock = std::chrono::steady_clock;

std::string signal_text(int number) { return ddh::str("signal ", number, " (", ::strsignal(number), ")"); }

// Signals that a process causes by its own error.
bool is_fault(int number) {
  return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL || number == SIGABRT;
}
bool was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

constexpr const char* kHostCode = "the host's code";
constexpr const char* kMemoryHint = "; if the system ran out of memory, use fewer ranks or a smaller batch";

}  // namespace

UsedFiles::UsedFiles(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0) files_.push_back({path, info});
  }
}

std::string UsedFiles::overwritten() const {
  for (const Used& file : files_) {
    struct stat now {};
    if (::stat(file.path.c_str(), &now) != 0) continue;
    const bool is_same_file = now.st_dev == file.at_start.st_dev && now.st_ino == file.at_start.st_ino;
    const bool has_changed = now.st_size != file.at_start.st_size ||
                             now.st_mtim.tv_sec != file.at_start.st_mtim.tv_sec ||
                             now.st_mtim.tv_nsec != file.at_start.st_mtim.tv_nsec;
    if (is_same_file && has_changed) return file.path;
  }
  return "";
}

Supervisor::Supervisor(const LaunchArgs& args, Progress& progress, LoaderRecord& record, SignalWatch& signals,
                       std::vector<Fd> sockets)
    : args_(args),
      progress_(progress),
      record_(record),
      signals_(signals),
      kv_(std::move(sockets)),
      watchdog_(progress, args.world_size, args.watchdog),
      load_watch_(record, args.watchdog),
      standstill_(progress, args.world_size, args.stop_grace),
      memory_kills_(args.cgroups) {
  const RankRange here = args.ranks_here();
  for (int rank = 0; rank < args.world_size; ++rank)
    if (rank < here.first || rank >= here.end()) set_state(rank, Watchdog::RankState::kEnded);
  if (here.count < args.world_size) watchdog_.expect_others();
}

Supervisor::~Supervisor() {
  kill_all();
  if (loader_ != 0) ::waitpid(loader_, nullptr, 0);
  for (const Rank& rank : ranks_)
    if (rank.running) ::waitpid(rank.pid, nullptr, 0);
}

void Supervisor::forget_in_child() {
  if (args_.cluster != nullptr) args_.cluster->forget();
  loader_ = 0;
  ranks_.clear();
  kv_ = KvServer({});
}

Outcome Supervisor::run() {
  reap();
  while (is_running() || cluster_waits()) {
    if (!is_running()) tell_end();
    wait_for_news();
    watch();
    if (deadline_ && SteadyClock::now() >= *deadline_) {
      end_.killed_after_stop = end_.stop_signal != 0;
      kill_all();
      deadline_.reset();
    }
  }
  Outcome outcome = own_outcome();
  outcome.has_begun = has_begun();
  outcome.numbers = numbers_after(outcome);
  outcome.again = starts_again(outcome);
  if (args_.cluster == nullptr) return outcome;
  if (args_.cluster->is_head()) {
    args_.cluster->tell_end_is_near();
    if (args_.before_others_end) args_.before_others_end(outcome);
    args_.cluster->tell_end({.exit_code = outcome.exit_code, .again = outcome.again});
    return outcome;
  }
  // The head prints the sentence.
  return {exit_code_.value_or(outcome.exit_code),
          has_lost_other_ ? end_.death : "",
          std::nullopt,
          outcome.has_begun,
          outcome.numbers,
          again_,
          has_lost_other_};
}

bool Supervisor::has_begun() const {
  const RankRange here = args_.ranks_here();
  for (int rank = here.first; rank < here.end(); ++rank)
    if (progress_.has_begun(rank)) return true;
  return here.count == 0 && args_.cluster != nullptr && args_.cluster->members_have_begun();
}

// What fails before the first step fails again, unless a host is lost while a run that had begun starts again.
bool Supervisor::starts_again(const Outcome& outcome) const {
  return args_.may_restart && outcome.exit_code == 1 && end_.stop_signal == 0 && !stopped_after_failure_ &&
         (outcome.has_begun || (args_.is_restart && has_lost_other_));
}

Outcome Supervisor::own_outcome() const {
  const bool knows = without_ranks_ && (without_ranks_->exit_code != 0 || !end_.failed);
  if (knows && end_.stop_signal == 0) return *without_ranks_;
  return verdict(end_, progress_, args_.ranks_here());
}

// A member waits for the verdict, the head for its members.
bool Supervisor::cluster_waits() const { return args_.cluster != nullptr && args_.cluster->waits(); }

// A member says once that its ranks have ended.
void Supervisor::tell_end() {
  if (has_told_end_ || args_.cluster->is_head()) return;
  has_told_end_ = true;
  const Outcome outcome = own_outcome();
  AgentEnd end{.exit_code = outcome.exit_code, .has_begun = has_begun()};
  if (end.has_begun && outcome.exit_code != 0) end.numbers = numbers_of_ranks(progress_, args_.ranks_here());
  args_.cluster->tell_end(end);
}

// Of all ranks of a run that has failed, for its page; "": it has not, or had not begun.
std::string Supervisor::numbers_after(const Outcome& outcome) const {
  if (!outcome.has_begun || outcome.exit_code == 0) return "";
  Json all = numbers_of_ranks(progress_, args_.ranks_here());
  if (args_.cluster == nullptr) return json_line(all);
  const Json others = args_.cluster->numbers_of_members();
  all.insert(all.end(), others.begin(), others.end());
  std::sort(all.begin(), all.end(), [](const Json& a, const Json& b) { return a.at("rank") < b.at("rank"); });
  return json_line(all);
}

void Supervisor::serve_cluster(const std::vector<pollfd>& polled) {
  ClusterNews news = args_.cluster->serve(polled);
  for (Fd& guest : news.store_guests) kv_.add(std::move(guest));
  for (const ClusterNews::Failure& failure : news.failures) failed_elsewhere(failure);
  for (const int number : news.signals) stop({number, 0, false});
  if (news.save) progress_.request_save();
  if (news.exit_code) exit_code_ = news.exit_code;
  again_ |= news.again;
}

void Supervisor::failed_elsewhere(const ClusterNews::Failure& failure) {
  const bool is_head = args_.cluster->is_head();
  if (failure.caused_by_peer) {
    if (end_.noticed.empty()) end_.noticed = failure.sentence;
  } else if (!killing_ && end_.death.empty() && !has_own_failure(progress_, args_.ranks_here())) {
    end_.death = failure.sentence;
  }
  end_.failed = true;
  has_lost_other_ |= failure.is_lost;
  kv_.abort(failure.sentence);
  if (is_head) args_.cluster->tell_failure(failure.sentence, true);
  // The ranks of this host are not the cause, and those that wait for a host that was cut off do not end by themselves.
  set_deadline(std::min(args_.failure_grace, args_.grace_after_others));
}

bool Supervisor::is_running() const {
  const bool only_holds_lock = args_.ranks_here().count == 0 && record_.state() == LoaderRecord::State::kRanksAreOthers;
  return (loader_ != 0 && !only_holds_lock) ||
         std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running; });
}

bool Supervisor::ranks_are_threads() const {
  return loader_ != 0 && record_.state() == LoaderRecord::State::kRanksAreHere;
}

void Supervisor::wait_for_news() {
  std::vector<pollfd> set = kv_.poll_set();
  const auto of_kv = static_cast<std::ptrdiff_t>(set.size());
  std::vector<pollfd> of_cluster;
  if (args_.cluster != nullptr) of_cluster = args_.cluster->poll_set();
  set.insert(set.end(), of_cluster.begin(), of_cluster.end());
  set.push_back({signals_.fd(), POLLIN, 0});
  int timeout = kv_.timeout_ms();
  const auto at_most = [&timeout](std::chrono::milliseconds limit) {
    const int mine = static_cast<int>(std::max<int64_t>(limit.count(), 0));
    timeout = timeout < 0 ? mine : std::min(timeout, mine);
  };
  if (deadline_) at_most(std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - SteadyClock::now()));
  if (watchdog_.interval()) at_most(*watchdog_.interval());
  if (standstill_.interval()) at_most(*standstill_.interval());
  if (args_.cluster != nullptr && args_.cluster->timeout_ms() >= 0)
    at_most(std::chrono::milliseconds(args_.cluster->timeout_ms()));
  if (::poll(set.data(), set.size(), timeout) < 0) {
    if (errno == EINTR) return;
    ddh::fail(DDH_INTERNAL, "the launcher can't wait for its ranks: ", std::strerror(errno));
  }
  set.pop_back();
  kv_.serve({set.begin(), set.begin() + of_kv});
  if (args_.cluster != nullptr) serve_cluster({set.begin() + of_kv, set.end()});
  for (const SignalWatch::Signal& signal : signals_.take()) {
    const bool was_stopped = end_.stop_signal != 0;
    if (signal.number == SIGUSR1)
      progress_.request_save();
    else if (signal.number != SIGCHLD)
      stop(signal);
    if (args_.cluster == nullptr || signal.number == SIGCHLD) continue;
    if (signal.number == SIGUSR1)
      args_.cluster->tell_save();
    else if (!was_stopped || end_.killed_by_signal)  // a copy is not handed on
      args_.cluster->tell_signal(signal.number);
  }
  reap();
}

void Supervisor::stop(const SignalWatch::Signal& signal) {
  // The program that has started the launchers ends all after the failure of one. It may soon kill them. The failure stays
  // the reason, but whoever sends a signal wants no ranks to start again.
  if (args_.cluster != nullptr && end_.failed && end_.stop_signal == 0) {
    stopped_after_failure_ = true;
    return kill_all();
  }
  const bool is_first = end_.stop_signal == 0;
  const auto sent_it = [&](const Rank& rank) { return rank.pid == signal.sender; };
  const bool from_child =
      signal.sender != 0 && (signal.sender == loader_ || std::any_of(ranks_.begin(), ranks_.end(), sent_it));
  if (signal.number == SIGTERM && from_child && !is_first) return;  // the same signal, delayed
  const std::string loading = record_.loading();
  note_stop(end_, {signal.number, signal.from_terminal}, progress_, args_,
            !loading.empty()                      ? loading
            : loader_ == 0 || ranks_are_threads() ? "the ranks were being prepared"
                                                  : "the run was being prepared");
  const bool prepares = args_.ranks_here().count == 0 && record_.state() == LoaderRecord::State::kPreparing;
  if (end_.killed_by_signal || !end_.has_begun || prepares) kill_all();
}

void Supervisor::reap() {
  reap_loader();
  for (size_t r = 0; r < ranks_.size(); ++r) reap_rank(static_cast<int>(r));
}

void Supervisor::reap_loader() {
  int status = 0;
  while (loader_ != 0 && ::waitpid(loader_, &status, WNOHANG | WUNTRACED | WCONTINUED) == loader_) {
    if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
      if (ranks_are_threads())
        set_states(WIFSTOPPED(status) ? Watchdog::RankState::kStopped : Watchdog::RankState::kRunning);
      continue;
    }
    loader_ended(status);
  }
}

void Supervisor::loader_ended(int status) {
  const LoaderRecord::State state = record_.state();
  loader_ = 0;
  switch (state) {
    case LoaderRecord::State::kRanksAreOthers:
      libraries_.emplace(record_.libraries());
      return take_over_ranks();
    case LoaderRecord::State::kRanksAreHere:
      return ranks_ended_together(status);
    case LoaderRecord::State::kEnded:
      without_ranks_ = {record_.exit_code(), record_.failure()};
      if (args_.cluster != nullptr && without_ranks_->exit_code != 0 && !end_.failed) {
        kv_.abort(without_ranks_->sentence);
        args_.cluster->tell_failure(without_ranks_->sentence, false);
      }
      take_over_ranks();  // it may have started some before it failed
      return kill_all();
    case LoaderRecord::State::kPreparing:
      break;
  }
  end_.failed = true;
  if (!killing_) end_.death = loader_death(status);
  if (args_.cluster != nullptr && !killing_) {
    kv_.abort(end_.death);
    args_.cluster->tell_failure(end_.death, false);
  }
  take_over_ranks();  // it may have started some
  kill_all();
}

// The ranks became children of this process when the loader ended.
void Supervisor::take_over_ranks() {
  for (int rank = 0; rank < args_.world_size; ++rank) {
    const pid_t pid = progress_.process(rank);
    ranks_.push_back({pid, pid != 0});
  }
  if (killing_) kill_all();
  for (int rank = 0; rank < args_.world_size; ++rank) reap_rank(rank);
}

void Supervisor::reap_rank(int rank) {
  Rank& of = ranks_[static_cast<size_t>(rank)];
  int status = 0;
  while (of.running) {
    const pid_t pid = ::waitpid(of.pid, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (pid != of.pid) return;
    if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
      set_state(rank, WIFSTOPPED(status) ? Watchdog::RankState::kStopped : Watchdog::RankState::kRunning);
      continue;
    }
    of.running = false;
    set_state(rank, Watchdog::RankState::kEnded);
    if (status != 0 || !progress_.is_complete(rank)) rank_failed(rank, status);
  }
}

void Supervisor::watch() {
  const auto now = SteadyClock::now();
  if (ranks_are_threads() && !end_.failed)
    for (int rank = 0; rank < args_.world_size; ++rank)
      if (progress_.failure(rank).order != 0 && !end_.failed) {
        end_.failed = true;
        set_deadline(args_.failure_grace);
      }
  if (end_.failed || killing_) return;
  const auto stopped_at = end_.stop_signal == 0 ? std::nullopt : std::optional(end_.stopped_at);
  if (const std::string still = standstill_.look(now, stopped_at); !still.empty()) return end_run(still);
  for (const Watchdog::News& news : {watchdog_.look(now), load_watch_.look(now)}) {
    for (const std::string& notice : news.notices) print_sentence(notice);
    if (!news.end.empty()) return end_run(news.end);
  }
}

void Supervisor::end_run(const std::string& death) {
  end_.failed = true;
  end_.death = death;
  kv_.abort("the launcher has ended the run");
  if (args_.cluster != nullptr) args_.cluster->tell_failure(death, false);
  kill_all();
}

std::string Supervisor::loader_death(int status) const {
  if (std::string told = record_.failure(); !told.empty()) return told;
  const std::string loading = record_.loading(), loads = record_.all_loads();
  const std::string who = "the process that prepares the run and loads its plugins ";
  const std::string how = WIFSIGNALED(status) ? "was killed by " + signal_text(WTERMSIG(status))
                                              : ddh::str("ended with exit code ", WEXITSTATUS(status));
  if (was_killed(status)) {
    const std::optional<std::string> no_memory = memory_kills_.reason();
    return who + how + (loading.empty() ? "" : " while " + loading) +
           (no_memory ? " for lack of memory (" + *no_memory + "); raise the limit" : "; start the run again");
  }
  if (!loading.empty())
    return who + how + " while " + loading +
           "; constructors and the entry of a plugin must not end the process: fix it";
  return who + how + " before the ranks were started" +
         (loads.empty() ? "" : "; if a plugin did this, fix it (before: " + loads + ")");
}

void Supervisor::ranks_ended_together(int status) {
  set_states(Watchdog::RankState::kEnded);
  bool all_complete = status == 0;
  for (int rank = 0; rank < args_.world_size; ++rank) all_complete = all_complete && progress_.is_complete(rank);
  if (all_complete) return;
  end_.failed = true;
  bool has_reason = false;  // a rank's own, or the end of others
  for (int rank = 0; rank < args_.world_size; ++rank) has_reason = has_reason || progress_.failure(rank).order != 0;
  const bool exited = WIFEXITED(status) && WEXITSTATUS(status) != 0;
  if (!killing_ && end_.death.empty() && !has_own_failure(progress_, args_.ranks_here()) && !(exited && has_reason))
    end_.death = death_together(status);
}

// The thread that has ended the process is not known, unless the exit guard was told.
std::string Supervisor::death_together(int status) const {
  if (std::string told = record_.failure(); !told.empty()) return told;
  std::string where;
  int64_t step = 0;
  for (int rank = 0; rank < args_.world_size; ++rank) {
    const std::string place = places(rank);
    where += ddh::str(where.empty() ? " while " : ", ", "rank ", rank, " was",
                      place.empty() ? " in the host's code" : place);
    step = std::max(step, progress_.step(rank));
  }
  const std::string who = "the process of all ranks";
  const std::string end = where + ddh::str(" at step ", step, "; the run has ended");
  if (was_killed(status)) {
    const std::optional<std::string> no_memory = memory_kills_.reason();
    return no_memory ? out_of_memory(who, *no_memory, end)
                     : who + " was killed by " + signal_text(SIGKILL) + end + kMemoryHint;
  }
  if (WIFSIGNALED(status)) return who + " was killed by " + signal_text(WTERMSIG(status)) + end + cure(false);
  return ddh::str(who, " ended without finishing the run (exit code ", WEXITSTATUS(status), ")", end,
                  "; a plugin must not end the process: fix the one that did");
}

void Supervisor::rank_failed(int rank, int status) {
  end_.failed = true;
  if (!killing_ && end_.death.empty() && !has_own_failure(progress_, args_.ranks_here()))
    end_.death = rank_death(rank, status);
  kv_.abort(ddh::str("rank ", rank, " has ended with an error"));
  if (args_.cluster != nullptr && !killing_)
    args_.cluster->tell_failure(own_outcome().sentence,
                                end_.death.empty() && !has_own_failure(progress_, args_.ranks_here()));
  set_deadline(args_.failure_grace);
}

// "": the rank has given its reason.
std::string Supervisor::rank_death(int rank, int status) const {
  const std::string who = ddh::str("rank ", rank, " (pid ", ranks_[static_cast<size_t>(rank)].pid, ")");
  const std::string where = places(rank);
  const bool in_plugin = !where.empty() && !where.starts_with(ddh::str(" in ", kHostCode));
  const std::string end = ddh::str(" at step ", progress_.step(rank), "; the run has ended");
  const std::optional<std::string> no_memory = was_killed(status) ? memory_kills_.reason() : std::nullopt;
  if (no_memory) return out_of_memory(who, *no_memory, where + end);
  if (WIFSIGNALED(status))
    return who + " was killed by " + signal_text(WTERMSIG(status)) + where + end +
           (is_fault(WTERMSIG(status)) ? cure(in_plugin) : "") + (was_killed(status) ? kMemoryHint : "");
  if (WEXITSTATUS(status) == 0)
    return who + " ended without finishing the run (exit code 0)" + where + end +
           "; a plugin must not end the process, fix it";
  if (progress_.failure(rank).order == 0)
    return ddh::str(who, " ended with exit code ", WEXITSTATUS(status), " and no reason", where, end);
  return "";
}

std::string Supervisor::out_of_memory(const std::string& who, const std::string& why, const std::string& where) const {
  const std::string plan = progress_.plan();
  return ddh::str("the kernel ended ", who, " for lack of memory (", why, ")", where,
                  plan.empty() ? "" : " (" + plan + ")",
                  "; raise the limit, or start it with what `ddhost plan --all-strategies` shows to take less");
}

// How to avoid a fault of a rank.
std::string Supervisor::cure(bool in_plugin) const {
  const std::string overwritten = libraries_ ? libraries_->overwritten() : "";
  if (!overwritten.empty())
    return "; '" + overwritten + "' was overwritten while the run used it: write new versions of a plugin under " +
           "another name and rename them, and start the run again";
  return in_plugin ? "; fix the plugin" : "";
}

// " in step of strategy 'x'". The thread that ended the rank is not known.
std::string Supervisor::places(int rank) const {
  std::string text = progress_.place(rank);
  const std::string comm = progress_.place(rank, RankThread::kComm);
  if (!comm.empty() && !text.starts_with(comm))  // a main thread that waits for it has the same call
    text += ddh::str(text.empty() ? kHostCode : "", ", its transport thread in ", comm);
  for (size_t i = 0; i < kDataThreads; ++i) {
    const std::string data = progress_.place(rank, data_thread(i));
    if (!data.empty()) text += ddh::str(text.empty() ? "" : ", its data thread in ", data);
  }
  return text.empty() ? "" : " in " + text;
}

void Supervisor::set_states(Watchdog::RankState state) {
  for (int rank = 0; rank < args_.world_size; ++rank) set_state(rank, state);
}

void Supervisor::set_state(int rank, Watchdog::RankState state) {
  watchdog_.set_state(rank, state);
  standstill_.set_state(rank, state, SteadyClock::now());
}

void Supervisor::set_deadline(std::chrono::milliseconds from_now) {
  const auto candidate = SteadyClock::now() + from_now;
  if (!deadline_ || candidate < *deadline_) deadline_ = candidate;
}

void Supervisor::kill_all() {
  killing_ = true;
  if (loader_ != 0) ::kill(loader_, SIGKILL);
  for (const Rank& rank : ranks_)
    if (rank.running) ::kill(rank.pid, SIGKILL);
}

}  // namespace ddhost
