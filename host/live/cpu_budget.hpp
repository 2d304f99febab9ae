// SPDX-License-Identifier: Apache-2.0
//
// live/cpu_budget.hpp: how much processor time the page of a run may take.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>

namespace ddhost {

// The processor time that a thread may take for a purpose: a share of what the run takes. Who has spent more waits, so that a
// flood of requests takes nothing from the ranks.
class CpuBudget {
 public:
  using Ns = std::chrono::nanoseconds;

  // `burst`: what can be saved up, and what there is at the beginning.
  CpuBudget(double share, Ns burst) : share_(share), burst_(burst), left_(burst) {}

  void spend(Ns used) {
    left_ -= used;
    if (left_ <= Ns(0)) is_exhausted_ = true;
  }
  // Since the last call the run has taken the processor time `run`, and `passed` has passed. A run that stands still, or whose
  // ranks are on other hosts, counts as one busy processor.
  void credit(Ns run, Ns passed) {
    const auto counted = static_cast<double>(std::max(run, passed).count());
    left_ = std::min(burst_, left_ + Ns(static_cast<int64_t>(counted * share_)));
    if (left_ >= burst_ / 4) is_exhausted_ = false;
  }
  // After it was exhausted, there is a quarter of the burst first, so that the thread does not wake up for each small piece.
  [[nodiscard]] bool is_exhausted() const { return is_exhausted_; }

  // The processor time of the calling thread.
  static Ns of_this_thread() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + Ns(time.tv_nsec);
  }

 private:
  double share_;
  Ns burst_, left_;
  bool is_exhausted_ = false;
};

}  // namespace ddhost
