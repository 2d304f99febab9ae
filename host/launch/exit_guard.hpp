// SPDX-License-Identifier: Apache-2.0
//
// launch/exit_guard.hpp: for plugins that run in this process without a launcher that watches it: when they are loaded,
// and when ranks are threads. If such a plugin calls exit() or dies of a signal, the guard prints an error and makes
// the exit code non-zero.
#pragma once

#include <csignal>
#include <cstddef>
#include <vector>

namespace ddhost {

// One at a time, for the whole process.
class ExitGuard {
 public:
  // Writes what this thread was doing: "loading strategy 'x'". Returns whether that is a plugin's code. Called from a signal
  // handler, so it must not allocate or lock.
  using Describe = bool (*)(const void* context, char* text, size_t capacity);

  // `threads`: how many threads may call exit() at the same time.
  ExitGuard(Describe describe, const void* context, int threads = 1);
  ExitGuard(const ExitGuard&) = delete;
  ExitGuard& operator=(const ExitGuard&) = delete;
  ~ExitGuard();

 private:
  struct State;
  static State& state();
  static void at_exit();
  static void register_for(int threads);
  static void at_signal(int number, siginfo_t* info, void*);
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
