// SPDX-License-Identifier: Apache-2.0
//
// engine/settings/phase_rates.hpp: the learning rates of a run, computed by a schedule plugin, and those of all its
// phases. A phase that sets an lr or a schedule has its own rates, which count only its own steps, over all cycles. The
// other phases share the run's rates, which count all steps.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddh/kind/schedule.h"
#include "engine/calls/instance.hpp"
#include "engine/calls/named_numbers.hpp"
#include "engine/samples/train_order.hpp"
#include "engine/services/tables/interfaces.hpp"
#include "engine/settings/course.hpp"
#include "engine/settings/run_plan.hpp"

namespace ddhost {

// The state of an instance, for a checkpoint. Empty: its rate depends only on the step.
using ScheduleState = SavedNumbers;

// One instance of the schedule for each optimizer, with that optimizer's own learning rate. Every instance gets every step,
// also steps of other optimizers.
//
//   schedules.lr(optimizer, step) ... schedules.step_done(step, skipped, loss) ... schedules.evaluated(loss)
//
// The instances get the same data on every rank, so the rates are equal.
class Schedules {
 public:
  // `section`: of its options. `steps`: how many it counts. `evaluates`: losses come from evaluations. `lr`: replaces the
  // optimizers' own. Error: the plugin refuses its options, or its table or a number is invalid.
  Schedules(RankServices& services, const Plugin& plugin, const std::string& section, int64_t steps, bool evaluates,
            std::optional<double> lr = std::nullopt);
  Schedules(const Schedules&) = delete;
  Schedules& operator=(const Schedules&) = delete;

  // `optimizer`: an index in train.optimizers. Error: the plugin returns no rate, or one that is negative or not
  // finite.
  [[nodiscard]] double lr(int32_t optimizer, int64_t step) const;
  // After the update of a step. `loss`: the mean over all ranks and micro-batches.
  void step_done(int64_t step, bool skipped, double loss);
  // After an evaluation.
  void evaluated(double loss);
  [[nodiscard]] bool reads_losses() const { return reads_losses_; }
  [[nodiscard]] const std::string& name() const { return name_; }  // "schedule.type=plateau"

  [[nodiscard]] ScheduleState state(int32_t optimizer) const;
  // Error: `saved` is of another schedule, or the schedule does not keep it.
  void restore(int32_t optimizer, const ScheduleState& saved);

 private:
  [[nodiscard]] const Instance& at(int32_t optimizer) const { return all_.at(static_cast<size_t>(optimizer)); }
  [[nodiscard]] NamedNumbers<ddh_schedule_number, ddh_schedule_api> numbers(const Instance& instance) const;
  void observe(double loss);

  PluginSeat seat_;
  std::deque<Instance> all_;  // in the order of train.optimizers
  const ddh_schedule_api* table_ = nullptr;
  const std::string name_;
  const bool reads_losses_;
  const bool evaluates_;  // losses are those of evaluations
};

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
