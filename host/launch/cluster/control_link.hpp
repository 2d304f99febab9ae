// SPDX-License-Identifier: Apache-2.0
//
// launch/cluster/control_link.hpp: JSON messages between the agents of a run, and beats in between, so that each end notices
// when the other is gone, cut off or stopped.
#pragma once

#include <poll.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "launch/kv.hpp"

namespace ddhost {

class ControlLink {
 public:
  using Clock = std::chrono::steady_clock;

  // The link is lost after a time of `heartbeat` without a word. If serve was not called for half of that time, the other end
  // gets half of it more, from then on; once in each silence.
  ControlLink(Fd socket, std::chrono::milliseconds heartbeat);

  // From now on; the first word may take `first`, because the other end prepares the run meanwhile.
  void set_heartbeat(std::chrono::milliseconds heartbeat, std::chrono::milliseconds first) {
    heartbeat_ = heartbeat;
    hear(first);
  }
  void send(const Json& message);
  [[nodiscard]] pollfd to_poll() const;
  // Milliseconds until serve must be called.
  [[nodiscard]] int timeout_ms() const;
  // Sends and receives what is possible without waiting, and returns the messages that have come.
  std::vector<Json> serve();
  // Why the link is lost; "": it is not.
  [[nodiscard]] const std::string& lost() const { return lost_; }
  // Sends all that is left, but waits no longer than until `deadline`.
  void flush(Clock::time_point deadline);
  // The same, and until the other end has read it and closed the link.
  void finish(Clock::time_point deadline);

 private:
  void write_some();
  void read_some();
  // The next word may take `patience`.
  void hear(std::chrono::milliseconds patience) {
    end_ = Clock::now() + patience;
    has_extended_ = false;
  }

  Fd socket_;
  std::chrono::milliseconds heartbeat_;
  std::string in_, out_, lost_;
  Clock::time_point spoken_, served_, end_;  // end_: of the time in which a word must come
  bool has_extended_ = false;                // in this silence
};

}  // namespace ddhost
