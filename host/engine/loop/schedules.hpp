// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/schedules.hpp: the learning rates of a run. A schedule plugin makes them: one instance for each optimizer, each
// from the optimizer's own learning rate. All instances are told of every step, whichever optimizer it used.
//
//   schedules.lr(optimizer, step) ... schedules.step_done(step, skipped, loss) ... schedules.evaluated(loss)
//
// All that they are told is the same on every rank, so the rates are too.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "ddh/kind/schedule.h"
#include "engine/calls/instance.hpp"
#include "engine/services/interfaces.hpp"

namespace ddhost {

// What an instance remembers between steps, for a checkpoint. Empty: its rate follows from the step alone.
using ScheduleState = std::map<std::string, double>;

class Schedules {
 public:
  // `steps`: of the run. `evaluates`: losses are those of evaluations. Error: what the plugin says of its options, or a
  // table or number of it that can't be.
  // `section`: of its options. `lr`: instead of the optimizers' own.
  Schedules(RankServices& services, const Plugin& plugin, const std::string& section, int64_t steps, bool evaluates,
            std::optional<double> lr = std::nullopt);
  Schedules(const Schedules&) = delete;
  Schedules& operator=(const Schedules&) = delete;

  // `optimizer`: its place in train.optimizers. Error: the plugin gives none, or one that is negative or not finite.
  [[nodiscard]] double lr(int32_t optimizer, int64_t step) const;
  // After the update of a step. `loss`: the mean over all ranks and micro-batches.
  void step_done(int64_t step, bool skipped, double loss);
  // After an evaluation.
  void evaluated(double loss);
  [[nodiscard]] bool reads_losses() const { return reads_losses_; }

  [[nodiscard]] ScheduleState state(int32_t optimizer) const;
  // Error: `saved` is of another schedule.
  void restore(int32_t optimizer, const ScheduleState& saved);

 private:
  [[nodiscard]] const Instance& at(int32_t optimizer) const { return all_.at(static_cast<size_t>(optimizer)); }
  // The instance's numbers by name, where they stand.
  [[nodiscard]] std::map<std::string, double*> numbers(const Instance& instance) const;
  void observe(double loss);

  PluginSeat seat_;
  std::deque<Instance> all_;  // in the order of train.optimizers
  const ddh_schedule_api* table_ = nullptr;
  const bool reads_losses_;
  const bool evaluates_;  // losses are those of evaluations
};

}  // namespace ddhost
