// SPDX-License-Identifier: Apache-2.0
//
// launch/watchdog.hpp: names the rank, the plugin and the call that the others wait for; a library that takes long to load;
// and, after a signal, the ranks that begin and end no call any more. It reads the records of the ranks and of the loader, so
// it also detects ranks that loop, hang or are stopped. The launcher calls it regularly; it has no thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launch/progress.hpp"

namespace ddhost {

// A notice limit of 0 switches the watchdog off.
struct WatchdogLimits {
  std::chrono::milliseconds notice{0};  // run.watchdog: first notice after this time, each next after twice the time
  std::chrono::milliseconds abort{0};   // run.watchdog_abort; 0: never
};

class LoaderRecord;

class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;
  enum class RankState : uint8_t { kRunning, kStopped, kEnded };

  // `progress` outlives the object.
  Watchdog(const Progress& progress, int world_size, WatchdogLimits limits);

  // The time until the launcher must call it again; nullopt: the watchdog is off.
  [[nodiscard]] std::optional<std::chrono::milliseconds> interval() const;
  void set_state(int rank, RankState state) { ranks_[static_cast<size_t>(rank)].state = state; }
  // There are ranks on other hosts, of which this object knows nothing.
  void expect_others() { has_others_ = true; }
  struct News {
    std::vector<std::string> notices;
    std::string end;  // not empty: the run ends with this message
  };
  News look(Clock::time_point now);

 private:
  // One thread's outermost call, when it was first seen, and the age at which a notice is due.
  struct Watched {
    CallFrame frame;
    Clock::time_point since;
    std::chrono::milliseconds next_notice{0};
  };
  struct Rank {
    RankState state = RankState::kRunning;
    Watched threads[kRankThreads];
    Watched stop;  // the frame represents a stopped rank
  };
  // A call that has lasted too long.
  struct Suspect {
    int rank;
    Watched* watched;
    std::string sentence;  // without the duration
    std::chrono::milliseconds age;
    std::chrono::milliseconds limit;
  };

  void forget_pause(Clock::time_point now);
  void follow(Watched& watched, const CallFrame& now_in, Clock::time_point now) const;
  [[nodiscard]] std::chrono::milliseconds limit_of(const CallFrame& frame) const;
  [[nodiscard]] bool waits(int rank) const;
  [[nodiscard]] bool has_ended(int rank) const;
  [[nodiscard]] std::vector<Suspect> suspects(Clock::time_point now);
  [[nodiscard]] std::string waiting(int except) const;
  void judge(News& news, Suspect& suspect) const;
  void judge_waits(News& news, Clock::time_point now);

  const Progress& progress_;
  const WatchdogLimits limits_;
  std::vector<Rank> ranks_;
  bool has_others_ = false;
  std::optional<Clock::time_point> last_look_;
};

// After a signal that ends the run, finds the ranks that begin and end no plugin call any more: they are stopped, or a call
// never returns. The launcher looks regularly, also before the signal, because a call may take as long as the run's longest
// one.
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
  [[nodiscard]] std::chrono::milliseconds limit() const { return std::max(grace_, longest_ + longest_ / 2); }
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

// The watchdog of loading: names a library whose own code takes long when it is loaded.
class LoadWatch {
 public:
  // `record` outlives the object.
  LoadWatch(const LoaderRecord& record, WatchdogLimits limits) : record_(record), limits_(limits) {}

  // The launcher calls it as often as the watchdog of the ranks.
  [[nodiscard]] Watchdog::News look(Watchdog::Clock::time_point now);

 private:
  const LoaderRecord& record_;
  const WatchdogLimits limits_;
  uint32_t load_ = 0;
  Watchdog::Clock::time_point since_;
  std::chrono::milliseconds notice_{0};  // the next one is due at this age
};

}  // namespace ddhost
