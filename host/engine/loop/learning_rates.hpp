// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/learning_rates.hpp: the learning rates of a run, as the train loop asks for them.
#pragma once

#include <cstdint>

namespace ddhost {

// How a step ended, as all ranks know it.
struct StepReport {
  bool skipped = false;  // no parameter was updated
  double loss = 0;       // mean over all ranks and micro-batches
};

// All that it hears is the same on every rank, so the rates are too.
class LearningRates {
 public:
  LearningRates() = default;
  LearningRates(const LearningRates&) = delete;
  LearningRates& operator=(const LearningRates&) = delete;
  virtual ~LearningRates() = default;

  // Of a step, which counts from 1. `optimizer`: its place in train.optimizers.
  [[nodiscard]] virtual double lr(int32_t optimizer, int64_t step) const = 0;
  virtual void step_done(const StepReport& report) = 0;  // once per step, after its update
  virtual void evaluated(double loss) = 0;               // after an evaluation
  [[nodiscard]] virtual bool reads_losses() const = 0;
};

}  // namespace ddhost
