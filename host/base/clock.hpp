// SPDX-License-Identifier: Apache-2.0
//
// base/clock.hpp: measures a rank's time by kind. Spans nest; time counts for the innermost one. Any thread
// of the rank may have spans (a collective in autograd's backward). If two threads have one, time counts for the span
// that began last. While a profile is taken, time also counts for what the innermost span is about. Without a
// profile, each span costs one branch on a null pointer.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
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
    const Time now = charge_until_now();
    const auto known = kind >= 0 && static_cast<size_t>(kind) < kSpanKinds;
    Span span{known ? static_cast<size_t>(kind) : size_t{DDH_SPAN_OTHER}, std::this_thread::get_id(), nullptr};
    if (recorder_) span.open = std::make_unique<OpenSpan>(recorder_->begin(span.kind, topic, innermost_of_mine(), now));
    open_.push_back(std::move(span));
  }
  // Ends the calling thread's innermost span, never another thread's.
  void end() {
    settle();
    const std::lock_guard lock(mutex_);
    const Time now = charge_until_now();
    const auto mine = my_last();
    if (mine == open_.rend()) return;
    if (recorder_ && mine->open) recorder_->end(*mine->open, now);
    open_.erase(std::next(mine).base());
  }
  // Milliseconds by kind since the start; time outside of spans is "other".
  [[nodiscard]] std::array<double, kSpanKinds> split_ms() {
    const std::lock_guard lock(mutex_);
    charge_until_now();
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
    recorder_ = std::make_unique<ProfileRecorder>(charge_until_now());
    settle_ = std::move(settle);
    is_profiled_.store(true, std::memory_order_release);
  }
  // Ends it. Spans that are open count no further.
  Profile profile_end() {
    settle();
    is_profiled_.store(false, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    const Time now = charge_until_now();
    for (Span& span : open_) span.open.reset();
    Profile out = recorder_ ? recorder_->take(now) : Profile{};
    recorder_.reset();
    return out;
  }
  [[nodiscard]] bool is_profiled() const { return is_profiled_.load(std::memory_order_relaxed); }
  // Begins a span of a part of the profile, which `end` ends: its kind is that of the span around it. See PartSpan.
  void begin_part(StepPart part, const char* name, const char* label, int32_t peer) {
    settle();
    const std::lock_guard lock(mutex_);
    const Time now = charge_until_now();
    const auto mine = my_last();
    const OpenSpan* const outer = mine == open_.rend() ? nullptr : mine->open.get();
    Span span{mine == open_.rend() ? size_t{DDH_SPAN_OTHER} : mine->kind, std::this_thread::get_id(), nullptr};
    if (recorder_)
      span.open = std::make_unique<OpenSpan>(
          recorder_->begin_part(part, name, label, peer, outer, outer == nullptr ? nullptr : outer->spent, now));
    open_.push_back(std::move(span));
  }
  // Counts time of the calling thread's innermost span as that of the norm. See NormShare.
  void share_norm(double ms) {
    const std::lock_guard lock(mutex_);
    if (recorder_) recorder_->share_norm(innermost_of_mine(), ms);
  }
  // Adds a span of a thread whose time does not count, such as a data worker's, to the trace.
  void beside(const char* name, Time from) {
    if (!is_profiled()) return;
    const std::lock_guard lock(mutex_);
    if (recorder_) recorder_->beside(name, from, std::chrono::steady_clock::now());
  }
  // Adds to an operation of the profile, if one is taken.
  void note_operation(const char* operation, uint64_t bytes, uint64_t calls = 0) {
    if (!is_profiled()) return;
    const std::lock_guard lock(mutex_);
    if (recorder_) recorder_->note_operation(operation, {calls, bytes, 0});
  }

  void count(std::string_view name, uint64_t add) {
    const std::lock_guard lock(mutex_);
    const auto known = counters_.find(name);
    if (known != counters_.end())
      known->second += add;
    else
      counters_.emplace(name, add);
  }
  [[nodiscard]] std::map<std::string, uint64_t> counters() const {
    const std::lock_guard lock(mutex_);
    return {counters_.begin(), counters_.end()};
  }

 private:
  struct Span {
    size_t kind;
    std::thread::id thread;
    std::unique_ptr<OpenSpan> open;  // nullptr: it began without a profile
  };

  // With mutex_ held.
  Time charge_until_now() {
    const Time now = std::chrono::steady_clock::now();
    const size_t kind = open_.empty() ? size_t{DDH_SPAN_OTHER} : open_.back().kind;
    const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    split_ms_[kind] += ms;
    last_ = now;
    if (recorder_) recorder_->charge(kind, open_.empty() ? nullptr : open_.back().open.get(), ms);
    return now;
  }
  std::vector<Span>::reverse_iterator my_last() {
    return std::find_if(open_.rbegin(), open_.rend(),
                        [me = std::this_thread::get_id()](const Span& span) { return span.thread == me; });
  }
  OpenSpan* innermost_of_mine() {
    const auto mine = my_last();
    return mine == open_.rend() ? nullptr : mine->open.get();
  }

  void settle() const {  // without mutex_, because it waits
    if (is_profiled_.load(std::memory_order_acquire) && settle_) settle_();
  }

  mutable std::mutex mutex_;
  Time last_ = std::chrono::steady_clock::now();
  std::vector<Span> open_;
  std::array<double, kSpanKinds> split_ms_{};
  std::map<std::string, uint64_t, std::less<>> counters_;
  std::atomic<bool> is_profiled_{false};
  std::unique_ptr<ProfileRecorder> recorder_;  // nullptr: no profile is taken
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

// A span within one of its kind: only a profile tells them apart, so without one it costs a branch.
class InnerSpan {
 public:
  InnerSpan(Clock& clock, int32_t kind, const SpanTopic& topic) : clock_(clock.is_profiled() ? &clock : nullptr) {
    if (clock_ != nullptr) clock_->begin(kind, topic);
  }
  InnerSpan(const InnerSpan&) = delete;
  InnerSpan& operator=(const InnerSpan&) = delete;
  ~InnerSpan() {
    if (clock_ != nullptr) clock_->end();
  }

 private:
  Clock* const clock_;
};

// A span that only a profile has; without one it costs a branch. `label` says what it is about, `peer` whom it waits for.
class PartSpan {
 public:
  PartSpan(Clock& clock, StepPart part, const char* name, const char* label = nullptr, int32_t peer = -1)
      : clock_(clock.is_profiled() ? &clock : nullptr) {
    if (clock_ != nullptr) clock_->begin_part(part, name, label, peer);
  }
  PartSpan(const PartSpan&) = delete;
  PartSpan& operator=(const PartSpan&) = delete;
  ~PartSpan() {
    if (clock_ != nullptr) clock_->end();
  }

 private:
  Clock* const clock_;
};

// Time of the norm within a loop that also sums: too short for a span of its own.
class NormShare {
 public:
  explicit NormShare(Clock& clock) : clock_(clock.is_profiled() ? &clock : nullptr) {
    if (clock_ != nullptr) from_ = std::chrono::steady_clock::now();
  }
  NormShare(const NormShare&) = delete;
  NormShare& operator=(const NormShare&) = delete;
  ~NormShare() {
    if (clock_ != nullptr)
      clock_->share_norm(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - from_).count());
  }

 private:
  Clock* const clock_;
  Clock::Time from_{};
};

}  // namespace ddhost
