// SPDX-License-Identifier: Apache-2.0
//
// launch/exit_guard.hpp: plugins run in this process while no launcher watches it: when they are loaded, and when ranks are
// its threads. A plugin that calls exit() then, or dies of a signal, leaves a sentence, and an exit code that is not 0.
#pragma once

#include <cstddef>
#include <vector>

namespace ddhost {

// One at a time, for the whole process.
class ExitGuard {
 public:
  // Writes what this thread was doing: "loading strategy 'x'". Called from a signal handler: no memory, no lock.
  using Describe = void (*)(const void* context, char* text, size_t capacity);

  ExitGuard(Describe describe, const void* context);
  ExitGuard(const ExitGuard&) = delete;
  ExitGuard& operator=(const ExitGuard&) = delete;
  ~ExitGuard();

 private:
  struct State;
  static State& state();
  static void at_exit();
  static void at_signal(int number);
  static void say(const char* what);
};

// A stack for the signal handlers of the calling thread, so that a stack overflow leaves a sentence too. Ends in the thread
// that made it.
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
