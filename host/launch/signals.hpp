// SPDX-License-Identifier: Apache-2.0
//
// launch/signals.hpp: makes Ctrl-C, termination and the end of children visible to poll().
#pragma once

#include <sys/types.h>

#include <csignal>
#include <vector>

#include "launch/kv_socket.hpp"

namespace ddhost {

// During its lifetime, SIGINT, SIGTERM, SIGHUP and SIGCHLD don't interrupt this thread or threads that it starts.
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
  };
  // The signals that have arrived since the last call.
  [[nodiscard]] std::vector<Signal> take() const;
  // Called in a rank: only the launcher handles signals that end runs. The terminal sends Ctrl-C to the launcher too.
  // SIGTERM, which batch systems send to every process, is forwarded to it.
  void leave_to_launcher();

 private:
  Fd fd_;
  sigset_t before_;
};

}  // namespace ddhost
