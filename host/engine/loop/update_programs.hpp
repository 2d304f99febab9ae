// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/update_programs.hpp: the update programs of a model, every train.update_every steps or between phases: forward
// alone over all samples, the same on every rank, to renew state that the model keeps.
#pragma once

#include <vector>

#include "engine/loop/train_setup.hpp"

namespace ddhost {

class UpdatePrograms {
 public:
  // Warns where the model has update programs and train.update_every is 0. Throws where it is given and there are none.
  explicit UpdatePrograms(const TrainSetup& setup);
  // After a step: runs them in the model's order where their turn has come. [collective]
  void step_done(int64_t step) const;
  // Some of them, now. [collective]
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
