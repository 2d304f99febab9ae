// SPDX-License-Identifier: Apache-2.0
//
// launch/standstill.hpp: after a signal that ends the run, finds the ranks that begin and end no plugin call any more: they
// are stopped, or a call never returns. The launcher looks regularly, also before the signal, because a call may take as
// long as the run's longest one.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launch/progress.hpp"
#include "launch/watchdog.hpp"

namespace ddhost {

class Standstill {
 public:
  using Clock = std::chrono::steady_clock;

  // `progress` outlives the object. A grace of 0 switches it off.
  Standstill(const Progress& progress, int world_size, std::chrono::milliseconds grace);

  // The time until the launcher must call look again; nullopt: it is off.
  [[nodiscard]] std::optional<std::chrono::milliseconds> interval() const;
  void set_state(int rank, Watchdog::RankState state, Clock::time_point now);
  // Follows the calls. After `stopped_at`, the time of the signal, it returns a sentence when ranks have stood still for
  // too long; else "".
  std::string look(Clock::time_point now, std::optional<Clock::time_point> stopped_at);

 private:
  struct Call {
    CallFrame frame;
    Clock::time_point since;                  // not later than its begin
    std::optional<Clock::time_point> waited;  // when it was first seen to wait for another rank
  };
  struct Rank {
    Watchdog::RankState state = Watchdog::RankState::kRunning;
    Clock::time_point changed;      // when a call was last seen to begin or end, or the signal came
    std::vector<CallFrame> frames;  // of all threads and depths
    std::vector<Call> calls;        // the outermost one of each thread
  };
  void follow(int rank, Clock::time_point now);
  void forget_pause(Clock::time_point now);
  [[nodiscard]] std::chrono::milliseconds limit() const { return std::max(grace_, longest_); }
  [[nodiscard]] std::optional<std::string> place_of(int rank) const;
  [[nodiscard]] std::string sentence(const std::vector<std::string>& ranks) const;

  const Progress& progress_;
  const std::chrono::milliseconds grace_;
  // Of a call that has ended: the time until it waited for another rank. Calls before the first step do not count.
  std::chrono::milliseconds longest_{0};
  std::vector<Rank> ranks_;
  bool is_stopped_ = false;  // the signal has come
  std::optional<Clock::time_point> last_look_;
};

}  // namespace ddhost
