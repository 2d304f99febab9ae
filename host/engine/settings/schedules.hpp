// SPDX-License-Identifier: Apache-2.0
//
// engine/settings/schedules.hpp: the learning rates of a run, computed by a schedule plugin. There is one instance for each
// optimizer, with that optimizer's own learning rate. Every instance gets every step, also steps of other optimizers.
//
//   schedules.lr(optimizer, step) ... schedules.step_done(step, skipped, loss) ... schedules.evaluated(loss)
//
// The instances get the same data on every rank, so the rates are equal.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "ddh/kind/schedule.h"
#include "engine/calls/instance.hpp"
#include "engine/services/tables/interfaces.hpp"

namespace ddhost {

// The state of an instance, for a checkpoint. Empty: its rate depends only on the step.
using ScheduleState = std::map<std::string, double>;

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
  // Error: `saved` is of another schedule.
  void restore(int32_t optimizer, const ScheduleState& saved);

 private:
  [[nodiscard]] const Instance& at(int32_t optimizer) const { return all_.at(static_cast<size_t>(optimizer)); }
  // Pointers to the instance's numbers, by name.
  [[nodiscard]] std::map<std::string, double*> numbers(const Instance& instance) const;
  void observe(double loss);

  PluginSeat seat_;
  std::deque<Instance> all_;  // in the order of train.optimizers
  const ddh_schedule_api* table_ = nullptr;
  const std::string name_;
  const bool reads_losses_;
  const bool evaluates_;  // losses are those of evaluations
};

}  // namespace ddhost
