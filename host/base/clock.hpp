// SPDX-License-Identifier: Apache-2.0
//
// base/clock.hpp: measures a rank's time by kind. Spans nest; time counts for the innermost one. Any thread
// of the rank may have spans (a collective in autograd's backward). If two threads have one, time counts for the span
// that began last. While a profile is taken, time also counts for what the innermost span is about.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/profile.hpp"
#include "ddh/ddh.h"

namespace ddhost {

// Thread-safe.
class Clock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void begin(int32_t kind, const SpanTopic& topic = {}) {
    settle();
    const std::lock_guard lock(mutex_);
    charge(std::chrono::steady_clock::now());
    const auto known = kind >= 0 && static_cast<size_t>(kind) < kSpanKinds;
    Spent* const spent = profile_ ? profile_->find(topic) : nullptr;
    if (spent != nullptr) ++spent->calls;
    open_.push_back({known ? static_cast<size_t>(kind) : size_t{DDH_SPAN_OTHER}, std::this_thread::get_id(), spent});
  }
  // Ends the calling thread's innermost span, never another thread's.
  void end() {
    settle();
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

  // Begins a profile. `settle` waits for work that is queued on a device, so that time counts for the span that queued it;
  // empty: there is no such work. It must not throw.
  void profile_begin(std::function<void()> settle) {
    if (settle) settle();
    const std::lock_guard lock(mutex_);
    charge(std::chrono::steady_clock::now());
    profile_.emplace();
    settle_ = std::move(settle);
    is_profiled_.store(true, std::memory_order_release);
  }
  // Ends it. Spans that are open count no further.
  Profile profile_end() {
    settle();
    is_profiled_.store(false, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    charge(std::chrono::steady_clock::now());
    for (Span& span : open_) span.spent = nullptr;
    Profile out = std::move(profile_).value_or(Profile{});
    profile_.reset();
    return out;
  }
  // Adds to an operation of the profile, if one is taken.
  void note_operation(const char* operation, uint64_t bytes, uint64_t calls = 0) {
    if (!is_profiled_.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(mutex_);
    if (profile_) profile_->find(operation, nullptr) += {calls, bytes, 0};
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
    Spent* spent;  // in profile_, or nullptr
  };

  void charge(Time now) {  // with mutex_ held
    const size_t kind = open_.empty() ? size_t{DDH_SPAN_OTHER} : open_.back().kind;
    const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    split_ms_[kind] += ms;
    last_ = now;
    if (!profile_) return;
    profile_->parts_ms[kind] += ms;
    if (!open_.empty() && open_.back().spent != nullptr) open_.back().spent->ms += ms;
  }

  void settle() const {  // without mutex_, because it waits
    if (is_profiled_.load(std::memory_order_acquire) && settle_) settle_();
  }

  mutable std::mutex mutex_;
  Time last_ = std::chrono::steady_clock::now();
  std::vector<Span> open_;
  std::array<double, kSpanKinds> split_ms_{};
  std::map<std::string, uint64_t> counters_;
  std::atomic<bool> is_profiled_{false};
  std::optional<Profile> profile_;
  std::function<void()> settle_;
};

class ClockSpan {
 public:
  explicit ClockSpan(Clock& clock, int32_t kind, const SpanTopic& topic = {}) : clock_(clock) {
    clock_.begin(kind, topic);
  }
  ClockSpan(const ClockSpan&) = delete;
  ClockSpan& operator=(const ClockSpan&) = delete;
  ~ClockSpan() { clock_.end(); }

 private:
  Clock& clock_;
};

}  // namespace ddhost
