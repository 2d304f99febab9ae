// SPDX-License-Identifier: Apache-2.0
#include "engine/settings/phase_rates.hpp"

#include <algorithm>

namespace ddhost {
namespace {

constexpr const char* kOfTheRun = "schedule";

const Plugin& plugin_of(const RunPlan& plan, const std::string& section) {
  const auto at = std::find_if(plan.phase_schedules.begin(), plan.phase_schedules.end(),
                               [&](const RunPlan::PhaseSchedule& s) { return s.section == section; });
  return at == plan.phase_schedules.end() ? plan.schedule : at->plugin;
}

}  // namespace

PhaseRates::PhaseRates(RankServices& services, const RunPlan& plan, const std::vector<PhaseSpec>& phases,
                       const TrainOrder& order, bool evaluates)
    : order_(order) {
  const auto shares = [](const PhaseSpec& phase) { return !phase.has_own_rates(); };
  if (std::any_of(phases.begin(), phases.end(), shares))
    all_.push_back(std::make_unique<Schedules>(services, plan.schedule, kOfTheRun, order.last_step(), evaluates));
  for (size_t i = 0; i < phases.size(); ++i) {
    has_own_.push_back(phases[i].has_own_rates());
    place_.push_back(has_own_[i] ? all_.size() : 0);
    if (!has_own_[i]) continue;
    const std::string section = phases[i].schedule.empty() ? kOfTheRun : phases[i].schedule;
    const int64_t steps = order.steps_of(static_cast<int64_t>(i)) * order.cycles();
    all_.push_back(
        std::make_unique<Schedules>(services, plugin_of(plan, section), section, steps, evaluates, phases[i].lr));
  }
}

int64_t PhaseRates::number(const TrainStep& step) const {
  const size_t place = order_.place_of(step.phase);
  if (!has_own_[place]) return step.step;
  const int64_t cycle = step.phase / static_cast<int64_t>(order_.phases().size());
  return cycle * order_.steps_of(step.phase) + step.phase_step;
}

double PhaseRates::lr(int32_t optimizer, const TrainStep& step) const {
  return of(step.phase).lr(optimizer, number(step));
}

// The run's rates count all steps; those of a phase only its own.
void PhaseRates::step_done(const TrainStep& step, bool skipped, double loss) {
  const bool runs_own = has_own_[order_.place_of(step.phase)];
  const bool has_shared = std::find(has_own_.begin(), has_own_.end(), false) != has_own_.end();
  if (runs_own && has_shared) all_.front()->step_done(step.step, skipped, loss);
  of(step.phase).step_done(number(step), skipped, loss);
}

std::string PhaseRates::reader_of_losses() const {
  const auto reader = std::find_if(all_.begin(), all_.end(), [](const auto& rates) { return rates->reads_losses(); });
  return reader == all_.end() ? "" : (*reader)->name();
}

}  // namespace ddhost
