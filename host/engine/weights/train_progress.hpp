// SPDX-License-Identifier: Apache-2.0
//
// engine/weights/train_progress.hpp: how far a run has come, besides its tensors: all that a checkpoint keeps of the train
// loop. The same on every rank.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ddhost {

// Of a dynamic loss scale (engine/loop/loss_scale.hpp).
struct LossScaleState {
  double scale = 1;
  int64_t hysteresis_left = 1, steps = 0, last_overflow = -1;
};

// A training program: its steps, and the place in its order of samples at which its next step begins.
struct ProgramProgress {
  std::string name;
  int64_t steps = 0;
  uint64_t samples = 0;
  uint64_t epoch_samples = 0;  // of one epoch
};

// An optimizer instance, by its section.
struct OptimizerProgress {
  std::string section, plugin, version;
  std::map<std::string, double> schedule;  // the numbers of its learning-rate schedule
  std::vector<int64_t> param_steps;        // updates of each parameter, in the order of the model
};

struct TrainProgress {
  int64_t step = 0;  // the last that is done
  // The run was stopped before the evaluation that follows the step. A resumed run begins with it.
  bool evaluation_pending = false;
  LossScaleState loss_scale;
  std::vector<ProgramProgress> programs;      // in the order of their first turn
  std::vector<OptimizerProgress> optimizers;  // in the order of train.optimizers
};

}  // namespace ddhost
