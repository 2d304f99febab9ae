// SPDX-License-Identifier: Apache-2.0
#include "launch/exit_guard.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "launch/mapped_path.hpp"

namespace ddhost {
namespace {

constexpr std::array<int, 5> kSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

}  // namespace

// Signal handlers have no argument, so their data is static.
struct ExitGuard::State {
  std::atomic<Describe> describe{nullptr};  // not null: a guard exists
  std::atomic<Report> report{nullptr};
  std::atomic<const void*> context{nullptr};
  std::atomic<bool> is_ending{false};  // a thread is in at_exit
  pid_t process = 0;                   // that made the guard
  int registered = 0;
  std::array<struct sigaction, kSignals.size()> before{};
  std::terminate_handler terminate_before = nullptr;
};

ExitGuard::State& ExitGuard::state() {
  static State state;
  return state;
}

bool ExitGuard::is_guarded() { return state().describe.load() != nullptr && state().process == ::getpid(); }

void ExitGuard::say(const char* what) {
  State& s = state();
  std::array<char, 1024> place{};
  const bool in_plugin = s.describe.load()(s.context.load(), place.data(), place.size());
  std::array<char, 1280> sentence{};
  size_t used = 0;
  // A library that gets no memory often ends the process, also where it is loaded.
  rlimit addresses{};
  const bool is_limited = ::getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY;
  const char* const end = !in_plugin ? "; the run has ended"
                          : is_limited
                              ? "; the run has ended; raise the limit of its memory (`ulimit -v`), or fix the plugin"
                              : "; the run has ended; fix the plugin";
  for (const char* part : {what, " while ", static_cast<const char*>(place.data()), end})
    for (; *part != '\0' && used + 1 < sentence.size(); ++part) sentence[used++] = *part;
  s.report.load()(s.context.load(), sentence.data());
}

void ExitGuard::at_exit() {
  if (!is_guarded()) return;
  while (state().is_ending.exchange(true)) ::pause();  // the first thread ends the process
  say("exit() was called");
  ::_exit(1);
}

void ExitGuard::at_signal(int number, siginfo_t* info, void*) {
  std::array<char, 3072> cut_file{};
  if (is_guarded() && write_cut_file(*info, cut_file.data(), cut_file.size())) {
    state().report.load()(state().context.load(), cut_file.data());
    ::_exit(1);
  }
  if (is_guarded()) {
    std::array<char, 24> what = {"killed by signal "};
    size_t at = std::strlen(what.data());
    if (number >= 10) what[at++] = static_cast<char>('0' + number / 10);
    what[at] = static_cast<char>('0' + number % 10);
    say(what.data());
  }
  ::raise(number);  // the handler is reset: now it ends the process
}

// The library's own handler prints lines of its own, which name no cure.
void ExitGuard::at_terminate() {
  try {
    if (is_guarded() && std::current_exception() != nullptr) std::rethrow_exception(std::current_exception());
  } catch (const std::bad_alloc&) {
    say("no memory was left");
    ::_exit(1);
  } catch (...) {
    // Not ours to explain.
  }
  if (state().terminate_before != nullptr) state().terminate_before();
  std::abort();
}

// exit() calls each registered function once. A second thread in exit() would skip a function that the first one is in,
// and end the process with code 0. So there is one for each thread.
void ExitGuard::register_for(int threads) {
  for (int& registered = state().registered; registered < threads; ++registered)
    static_cast<void>(std::atexit(&ExitGuard::at_exit));
}

ExitGuard::ExitGuard(Describe describe, Report report, const void* context, int threads) {
  register_for(threads);
  State& s = state();
  s.process = ::getpid();
  s.context = context;
  s.report = report;
  s.describe = describe;
  s.terminate_before = std::set_terminate(&ExitGuard::at_terminate);
  struct sigaction mine {};
  mine.sa_sigaction = &ExitGuard::at_signal;
  mine.sa_flags = static_cast<int>(SA_SIGINFO | SA_RESETHAND | SA_ONSTACK);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &s.before[i]);
    if (s.before[i].sa_handler == SIG_DFL) ::sigaction(kSignals[i], &mine, nullptr);  // sanitizers keep their own
  }
}

ExitGuard::~ExitGuard() {
  State& s = state();
  s.describe = nullptr;
  std::set_terminate(s.terminate_before);
  for (size_t i = 0; i < kSignals.size(); ++i)
    if (s.before[i].sa_handler == SIG_DFL) ::sigaction(kSignals[i], &s.before[i], nullptr);
}

SignalStack::SignalStack() : memory_(size_t{64} * 1024) {
  stack_t stack{};
  stack.ss_sp = memory_.data();
  stack.ss_size = memory_.size();
  ::sigaltstack(&stack, nullptr);
}

SignalStack::~SignalStack() {
  stack_t off{};
  off.ss_flags = SS_DISABLE;
  ::sigaltstack(&off, nullptr);
}

}  // namespace ddhost
