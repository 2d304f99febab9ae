// SPDX-License-Identifier: Apache-2.0
//
// schedule/curve.cpp: counting for a curve.
#include "schedule/curve.hpp"

#include "ddh/sdk/plugin.hpp"

namespace ddhost {

double CurveSchedule::lr(int64_t step) const {
  return curve_(static_cast<double>(counts_ == Counts::kSteps ? step - 1 : updates_));
}

void CurveSchedule::step_done(const StepReport& report) {
  if (!report.skipped) ++updates_;
}

ScheduleState CurveSchedule::state() const {
  if (counts_ == Counts::kSteps) return {};
  return {{"updates", static_cast<double>(updates_)}};
}

void CurveSchedule::restore(const ScheduleState& state) {
  check_same_names(state, this->state());
  if (counts_ == Counts::kUpdates) updates_ = static_cast<int64_t>(state.at("updates"));
}

void check_same_names(const ScheduleState& saved, const ScheduleState& own) {
  const auto names = [](const ScheduleState& state) {
    std::string list;
    for (const auto& [name, number] : state) list += (list.empty() ? "" : ", ") + name;
    return list.empty() ? "nothing" : list;
  };
  if (names(saved) != names(own))
    ddh::fail(DDH_FAILED_PRECONDITION, "the saved state of the learning-rate schedule holds ", names(saved),
              "; this schedule.type keeps ", names(own), "; go on with the type that it was saved under");
}

}  // namespace ddhost
