// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/update_programs.hpp: runs the update programs of a model every train.update_every steps or between phases:
// forward only over all samples, equal on every rank, to recompute state of the model.
#pragma once

#include <vector>

#include "engine/loop/train_setup.hpp"

namespace ddhost {

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

}  // namespace ddhost
