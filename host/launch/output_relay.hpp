// SPDX-License-Identifier: Apache-2.0
//
// launch/output_relay.hpp: what ranks write to their standard output and errors, each line with the host and the rank before
// it: "[node1 3] text". A process of its own reads it from pipes and writes it: a terminal that takes nothing may hold up
// ranks, but not the launcher, which watches them and is heard by other hosts.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "launch/kv.hpp"
#include "launch/rank_range.hpp"

namespace ddhost {

// The ranks whose lines are named, on a host of this name; none if `ranks` is empty.
struct NamedOutput {
  std::string host;
  RankRange ranks;
};

class OutputRelay {
 public:
  // Starts the process. `in_child` closes there what belongs to this one. Call it before any thread exists.
  OutputRelay(const NamedOutput& output, const std::function<void()>& in_child);
  OutputRelay(const OutputRelay&) = delete;
  OutputRelay& operator=(const OutputRelay&) = delete;
  ~OutputRelay() { finish(); }

  // In the process of a rank: its output goes to the relay, if it is named. Error: it can't.
  void take(int rank);
  // In all other processes: they do not write into the pipes, which end with the ranks.
  void close_pipes() { pipes_.clear(); }
  // In the launcher, after the ranks have ended: waits until all is written, for a second at most. What is
  // left then is dropped with a warning.
  void finish();

 private:
  struct Pipe {
    int rank, stream;  // STDOUT_FILENO or STDERR_FILENO
    Fd read, write;
  };
  [[noreturn]] void live_in_child(const std::string& host, pid_t launcher,
                                  const std::function<void()>& in_child) noexcept;
  [[noreturn]] void relay(const std::string& host, pid_t launcher);

  std::vector<Pipe> pipes_;
  pid_t process_ = 0;
};

// A rank's output goes to the end of a file. Error: it can't be written.
void send_output_to(const std::string& file);

}  // namespace ddhost
