// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/phase_changes.hpp: the work between the phases of a run: update programs, resets of optimizer
// state, and state that no later phase needs.
#pragma once

#include <vector>

#include "engine/loop/train_setup.hpp"
#include "engine/record/monitor.hpp"
#include "engine/samples/train_order.hpp"

namespace ddhost {

// The update programs of a model, every train.update_every steps or between phases: forward only over all samples, equal on
// every rank, to recompute state of the model.
class UpdatePrograms {
 public:
  // Warns if the run never runs the model's update programs. Throws if train.update_every is given and there are none.
  explicit UpdatePrograms(const TrainSetup& setup);
  // Called after a step: runs them in the model's order if they are due. [collective]
  void step_done(int64_t step) const;
  // Runs some of them now. [collective]
  void run(const std::vector<int32_t>& programs, int64_t step) const {
    for (const int32_t program : programs) run(program, step);
  }

 private:
  void run(int32_t program, int64_t step) const;

  const TrainSetup& setup_;
  const int64_t every_;
  const std::vector<int32_t> programs_;
};

class PhaseChanges {
 public:
  // All outlive this object.
  PhaseChanges(const TrainSetup& setup, const TrainOrder& order, const UpdatePrograms& updates, Monitor& monitor)
      : setup_(setup), order_(order), updates_(updates), monitor_(monitor) {}

  // Whether before() resets or frees optimizer state.
  [[nodiscard]] bool changes_state(const TrainStep& step) const { return resets_state(step) || frees_state(step); }
  // Before a step that may be the first of its phase, and after one that may be the last. [collective]
  void before(const TrainStep& step) const;
  void after(const TrainStep& step) const;

 private:
  [[nodiscard]] const PhaseSpec& spec_of(const TrainStep& step) const {
    return setup_.phases[order_.place_of(step.phase)];
  }
  [[nodiscard]] bool resets_state(const TrainStep& step) const {
    return step.phase_step == 1 && spec_of(step).new_state && step.step != 1;  // at the first step it is new anyway
  }
  [[nodiscard]] bool frees_state(const TrainStep& step) const {
    return step.phase_step == 1 && step.phase > 0 &&
           order_.programs_from(step.phase) != order_.programs_from(step.phase - 1);
  }
  void say(const TrainStep& step) const;

  const TrainSetup& setup_;
  const TrainOrder& order_;
  const UpdatePrograms& updates_;
  Monitor& monitor_;
};

}  // namespace ddhost
