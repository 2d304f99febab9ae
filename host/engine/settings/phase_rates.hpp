// SPDX-License-Identifier: Apache-2.0
//
// engine/settings/phase_rates.hpp: the learning rates of all phases. A phase that sets an lr or a schedule has its own rates,
// which count only its own steps, over all cycles. The other phases share the run's rates, which count all steps.
#pragma once

#include <memory>
#include <vector>

#include "engine/samples/train_order.hpp"
#include "engine/settings/phases.hpp"
#include "engine/settings/run_plan.hpp"
#include "engine/settings/schedules.hpp"

namespace ddhost {

class PhaseRates {
 public:
  // `order` outlives this object.
  PhaseRates(RankServices& services, const RunPlan& plan, const std::vector<PhaseSpec>& phases, const TrainOrder& order,
             bool evaluates);

  [[nodiscard]] double lr(int32_t optimizer, const TrainStep& step) const;
  // After the update of a step; as Schedules.
  void step_done(const TrainStep& step, bool skipped, double loss);
  // After an evaluation that follows a step of `phase`.
  void evaluated(int64_t phase, double loss) { of(phase).evaluated(loss); }
  // "schedule.type=plateau": the first schedule that reads losses; "": none does.
  [[nodiscard]] std::string reader_of_losses() const;
  // The run's rates come first, if a phase uses them; then those of phases.
  [[nodiscard]] const std::vector<std::unique_ptr<Schedules>>& all() const { return all_; }

 private:
  [[nodiscard]] Schedules& of(int64_t phase) const { return *all_[place_[order_.place_of(phase)]]; }
  // The number of the step as the schedule counts it.
  [[nodiscard]] int64_t number(const TrainStep& step) const;

  const TrainOrder& order_;
  std::vector<std::unique_ptr<Schedules>> all_;
  std::vector<size_t> place_;  // per phase of a cycle, in all_
  std::vector<bool> has_own_;  // per phase of a cycle
};

}  // namespace ddhost
