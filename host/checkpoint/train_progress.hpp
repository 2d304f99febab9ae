// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/train_progress.hpp: the progress of a run: all that a checkpoint saves of the train loop, besides tensors.
// It is the same on every rank.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ddhost {

// Of a dynamic loss scale (engine/settings/loss_scale.hpp).
struct LossScaleState {
  double scale = 1;
  int64_t hysteresis_left = 1, steps = 0, last_overflow = -1;
};

struct BestValue {
  std::optional<double> value;
  int64_t step = 0;
};

// Of a metric of evaluations (engine/loop/evaluations.hpp).
struct BestState {
  std::string metric, mode;  // "" where the option is not given
  uint64_t samples = 0;      // of one evaluation; 0: not known
  BestValue best;
};

// Of train.patience (engine/loop/evaluations.hpp).
struct PatienceState {
  BestState best;
  int64_t without_better = 0;  // evaluations in a row
};

// A training program: the samples that it has taken of its order over all epochs.
struct ProgramProgress {
  std::string name;
  uint64_t samples = 0;
  uint64_t epoch_samples = 0;  // of one epoch
};

// An instance of an optimizer or a follower, by its section.
struct OptimizerProgress {
  std::string section, plugin, version;
  // The numbers of its learning-rate schedules: the run's own, then those of phases (engine/settings/phase_rates.hpp).
  std::vector<std::map<std::string, double>> schedules;
  std::map<std::string, double> numbers;  // its own
  std::vector<int64_t> param_steps;       // updates of each parameter, in the order of the model
  uint32_t state_version = 0;             // ddh_desc.state_version of the plugin
};

struct TrainProgress {
  int64_t step = 0;  // the last that is done
  // Of this step: see TrainPosition (engine/samples/train_order.hpp).
  int64_t phase = 0, phase_step = 0;
  uint64_t phase_begin = 0;
  int64_t cycle = 0;  // for readers: from 0
  // The run was stopped before the evaluation that follows the step. A resumed run begins with it.
  bool evaluation_pending = false;
  LossScaleState loss_scale;
  int64_t skipped_in_a_row = 0;  // steps, for precision.max_skipped
  PatienceState patience;
  BestState best;                             // of checkpoint.best
  std::vector<ProgramProgress> programs;      // in the order of the model
  std::vector<OptimizerProgress> optimizers;  // in the order of train.optimizers
  std::vector<OptimizerProgress> followers;   // in the order of train.followers
};

}  // namespace ddhost
