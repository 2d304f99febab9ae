// SPDX-License-Identifier: Apache-2.0
//
// schedule/curve.hpp: a schedule that is a pure function of a count.
#pragma once

#include <functional>

#include "schedule/schedule.hpp"

namespace ddhost {

// The rate after so many steps.
using Curve = std::function<double(double done)>;

enum class Counts {
  kSteps,    // all steps before this one: the end of the curve is the end of the run
  kUpdates,  // only those that were not skipped, as DeepSpeed counts
};

class CurveSchedule final : public Schedule {
 public:
  CurveSchedule(Curve curve, Counts counts) : curve_(std::move(curve)), counts_(counts) {}

  [[nodiscard]] double lr(int64_t step) const override;
  void step_done(const StepReport& report) override;
  void evaluated(double /*loss*/) override {}
  [[nodiscard]] ScheduleState state() const override;
  void restore(const ScheduleState& state) override;

 private:
  Curve curve_;
  Counts counts_;
  int64_t updates_ = 0;
};

// Error when a saved state has other names than a schedule's own: it is of another kind.
void check_same_names(const ScheduleState& saved, const ScheduleState& own);

}  // namespace ddhost
