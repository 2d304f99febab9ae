// SPDX-License-Identifier: Apache-2.0
//
// launch/signals.hpp: the signals of a run, in the launcher as something that poll() sees, and in its ranks.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <vector>

#include "launch/kv.hpp"

namespace ddhost {

// Ctrl-C, termination, the request for a checkpoint (SIGUSR1) and the end of children as something that poll() sees.
// While it lives, SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGCHLD don't interrupt this thread, nor those that it starts.
class SignalWatch {
 public:
  SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  ~SignalWatch();
  [[nodiscard]] int fd() const { return fd_.get(); }
  struct Signal {
    int number;
    pid_t sender;
    bool from_terminal;  // a key, such as Ctrl-C
  };
  // The signals that have arrived since the last call.
  [[nodiscard]] std::vector<Signal> take() const;
  // In a rank: ignores the signals that the launcher handles. The terminal sends them to the launcher too. Batch systems
  // send SIGTERM to every process; a rank passes it on to the launcher.
  void leave_to_launcher();

 private:
  Fd fd_;
  sigset_t before_;
};

// In a process of ranks: hands SIGTERM on to the launcher from a thread of its own, which lives as long as the process. A
// handler would interrupt compute kernels: after one, generated kernels of a matrix library left the heap corrupted.
void hand_on_termination();

}  // namespace ddhost
