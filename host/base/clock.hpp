// SPDX-License-Identifier: Apache-2.0
//
// base/clock.hpp: measures a rank's time by kind. Spans nest; time counts for the innermost one. Any thread
// of the rank may have spans (a collective in autograd's backward). If two threads have one, time counts for the span
// that began last.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ddh/ddh.h"

namespace ddhost {

inline constexpr size_t kSpanKinds = 6;
inline constexpr std::array<const char*, kSpanKinds> kSpanNames = {"other",    "data", "forward",
                                                                   "backward", "comm", "optim"};

// Thread-safe.
class Clock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void begin(int32_t kind) {
    const std::lock_guard lock(mutex_);
    charge(std::chrono::steady_clock::now());
    const auto known = kind >= 0 && static_cast<size_t>(kind) < kSpanKinds;
    open_.push_back({known ? static_cast<size_t>(kind) : size_t{DDH_SPAN_OTHER}, std::this_thread::get_id()});
  }
  // Ends the calling thread's innermost span, never another thread's.
  void end() {
    const std::lock_guard lock(mutex_);
    charge(std::chrono::steady_clock::now());
    const auto mine = std::find_if(open_.rbegin(), open_.rend(),
                                   [me = std::this_thread::get_id()](const Span& span) { return span.thread == me; });
    if (mine != open_.rend()) open_.erase(std::next(mine).base());
  }
  // Milliseconds by kind since the start; time outside of spans is "other".
  [[nodiscard]] std::array<double, kSpanKinds> split_ms() {
    const std::lock_guard lock(mutex_);
    charge(std::chrono::steady_clock::now());
    return split_ms_;
  }
  // Resets all times and counts, to exclude the start-up.
  void restart() {
    const std::lock_guard lock(mutex_);
    last_ = std::chrono::steady_clock::now();
    split_ms_ = {};
    counters_.clear();
  }

  void count(const std::string& name, uint64_t add) {
    const std::lock_guard lock(mutex_);
    counters_[name] += add;
  }
  [[nodiscard]] std::map<std::string, uint64_t> counters() const {
    const std::lock_guard lock(mutex_);
    return counters_;
  }

 private:
  struct Span {
    size_t kind;
    std::thread::id thread;
  };

  void charge(Time now) {  // with mutex_ held
    split_ms_[open_.empty() ? DDH_SPAN_OTHER : open_.back().kind] +=
        std::chrono::duration<double, std::milli>(now - last_).count();
    last_ = now;
  }

  mutable std::mutex mutex_;
  Time last_ = std::chrono::steady_clock::now();
  std::vector<Span> open_;
  std::array<double, kSpanKinds> split_ms_{};
  std::map<std::string, uint64_t> counters_;
};

class ClockSpan {
 public:
  ClockSpan(Clock& clock, int32_t kind) : clock_(clock) { clock_.begin(kind); }
  ClockSpan(const ClockSpan&) = delete;
  ClockSpan& operator=(const ClockSpan&) = delete;
  ~ClockSpan() { clock_.end(); }

 private:
  Clock& clock_;
};

}  // namespace ddhost
