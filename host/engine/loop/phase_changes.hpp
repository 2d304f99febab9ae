// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/phase_changes.hpp: the work between the phases of a run: update programs, resets of optimizer
// state, and state that no later phase needs.
#pragma once

#include "engine/data/train_order.hpp"
#include "engine/loop/train_setup.hpp"
#include "engine/loop/update_programs.hpp"
#include "engine/monitor/monitor.hpp"

namespace ddhost {

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
