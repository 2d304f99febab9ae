// SPDX-License-Identifier: Apache-2.0
//
// schedule/schedule.hpp: the learning rate of every step. The train loop asks for it before a step and tells how the step
// and the evaluations went; all that it tells is the same on every rank, so the rates are too.
//
//   schedule->lr(step) ... schedule->step_done({skipped, loss}) ... schedule->evaluated(loss)
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "engine/loop/learning_rates.hpp"

namespace ddhost {

// What a schedule remembers between steps, for a checkpoint. Empty: the rate follows from the step alone.
using ScheduleState = std::map<std::string, double>;

class Schedule {
 public:
  Schedule() = default;
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;
  virtual ~Schedule() = default;

  [[nodiscard]] virtual double lr(int64_t step) const = 0;  // counts from 1
  virtual void step_done(const StepReport& report) = 0;     // once per step, after its update
  virtual void evaluated(double loss) = 0;                  // after an evaluation
  [[nodiscard]] virtual bool reads_losses() const { return false; }

  [[nodiscard]] virtual ScheduleState state() const = 0;
  // Error when `state` is of another kind of schedule.
  virtual void restore(const ScheduleState& state) = 0;
};

// The schedule of section `schedule`; Error: an option that schedule.type has no use for, or options that contradict each
// other. `evaluates`: evaluated() will be called in this run; else the losses of the steps stand in. `optimizer`: the
// section whose lr takes the course.
std::unique_ptr<Schedule> make_schedule(const Config& config, bool evaluates,
                                        const std::string& optimizer = "optimizer");

// One schedule for each optimizer of the run: the same course, each from its own learning rate. All of them hear of every
// step, whichever optimizer it used.
class Schedules final : public LearningRates {
 public:
  Schedules(const Config& config, bool evaluates);

  [[nodiscard]] double lr(int32_t optimizer, int64_t step) const override {
    return all_.at(static_cast<size_t>(optimizer))->lr(step);
  }
  void step_done(const StepReport& report) override {
    for (const auto& schedule : all_) schedule->step_done(report);
  }
  void evaluated(double loss) override {
    for (const auto& schedule : all_) schedule->evaluated(loss);
  }
  [[nodiscard]] bool reads_losses() const override { return all_.front()->reads_losses(); }

 private:
  std::vector<std::unique_ptr<Schedule>> all_;  // in the order of train.optimizers
};

// Makes the section explicit, after the same checks: schedule.type by its own name, and the fixed defaults of that type.
// What follows another key (decay_steps: train.steps) stays null.
void complete_schedule(Config& config);

}  // namespace ddhost
