// SPDX-License-Identifier: Apache-2.0
//
// services/clock.hpp: where a rank's time goes. Spans nest; time counts for the innermost one.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "ddh/ddh.h"

namespace ddhost {

inline constexpr size_t kSpanKinds = 6;
inline constexpr std::array<const char*, kSpanKinds> kSpanNames = {"other",    "data", "forward",
                                                                   "backward", "comm", "optim"};

// The main thread's alone, but for count().
class Clock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void begin(int32_t kind) {
    const Time now = std::chrono::steady_clock::now();
    charge(now);
    const auto known = kind >= 0 && static_cast<size_t>(kind) < kSpanKinds;
    stack_.push_back(known ? static_cast<size_t>(kind) : size_t{DDH_SPAN_OTHER});
  }
  void end() {
    charge(std::chrono::steady_clock::now());
    if (!stack_.empty()) stack_.pop_back();
  }
  // Milliseconds by kind since the start; time outside of spans is "other".
  [[nodiscard]] std::array<double, kSpanKinds> split_ms() {
    charge(std::chrono::steady_clock::now());
    return split_ms_;
  }
  // Forgets all time and counts so far: start-up is part of neither.
  void restart() {
    last_ = std::chrono::steady_clock::now();
    split_ms_ = {};
    const std::lock_guard lock(counters_mutex_);
    counters_.clear();
  }

  void count(const std::string& name, uint64_t add) {
    const std::lock_guard lock(counters_mutex_);
    counters_[name] += add;
  }
  [[nodiscard]] std::map<std::string, uint64_t> counters() const {
    const std::lock_guard lock(counters_mutex_);
    return counters_;
  }

 private:
  void charge(Time now) {
    split_ms_[stack_.empty() ? DDH_SPAN_OTHER : stack_.back()] +=
        std::chrono::duration<double, std::milli>(now - last_).count();
    last_ = now;
  }
  Time last_ = std::chrono::steady_clock::now();
  std::vector<size_t> stack_;
  std::array<double, kSpanKinds> split_ms_{};
  mutable std::mutex counters_mutex_;
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
