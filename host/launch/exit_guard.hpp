// SPDX-License-Identifier: Apache-2.0
//
// launch/exit_guard.hpp: for processes in which code of several plugins runs: the loader, and ranks that are threads. If
// exit() is called there, or a signal or a lack of memory ends the process, the guard reports which thread did what. Of
// _exit() it sees nothing; the launcher does.
#pragma once

#include <csignal>
#include <cstddef>
#include <vector>

namespace ddhost {

// One at a time, for the whole process. A child of the process is not guarded.
class ExitGuard {
 public:
  // Writes what this thread was doing: "loading strategy 'x'". Returns whether that is a plugin's code. Called from a signal
  // handler, so it must not allocate or lock.
  using Describe = bool (*)(const void* context, char* text, size_t capacity);
  // Takes the sentence about the end. Called from a signal handler, too.
  using Report = void (*)(const void* context, const char* sentence);

  // `threads`: how many threads may call exit() at the same time.
  ExitGuard(Describe describe, Report report, const void* context, int threads = 1);
  ExitGuard(const ExitGuard&) = delete;
  ExitGuard& operator=(const ExitGuard&) = delete;
  ~ExitGuard();

 private:
  struct State;
  static State& state();
  static bool is_guarded();
  static void at_exit();
  static void register_for(int threads);
  static void at_signal(int number, siginfo_t* info, void*);
  [[noreturn]] static void at_terminate();
  static void say(const char* what);
};

// An alternate stack for signal handlers of the calling thread, so that a stack overflow is reported too. Must be
// destroyed by the same thread.
class SignalStack {
 public:
  SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;
  ~SignalStack();

 private:
  std::vector<char> memory_;
};

}  // namespace ddhost
