// SPDX-License-Identifier: Apache-2.0
//
// engine/settings/loss_scale.hpp: loss scaling, which keeps small fp16 gradients from underflow.
//
// A dynamic scale is divided by a factor after an overflow, and multiplied after a window of steps without one. The
// rules are those of DeepSpeed's DynamicLossScaler (since v0.17.1). With growth "torch" it rises one step earlier, as
// in torch.cuda.amp.GradScaler.
#pragma once

#include <cstdint>

#include "checkpoint/train_progress.hpp"

namespace ddhost {

class RunConfig;

struct LossScaleSettings {
  bool dynamic = false;
  double initial = 1, factor = 2, min = 1;  // powers of two
  int64_t window = 1000;                    // steps without overflow before the scale rises
  int64_t hysteresis = 1;                   // overflows until it falls
  bool consecutive_hysteresis = false;      // every good step resets the hysteresis, not only a rise
  bool raise_at_min = true;                 // an overflow at the smallest scale ends the run
  bool grows_at_window_end = false;

  // From section `precision`. Throws if a value is not a power of two.
  static LossScaleSettings from(const RunConfig& config);
};

class LossScale {
 public:
  explicit LossScale(const LossScaleSettings& settings)
      : settings_(settings), scale_(settings.initial), hysteresis_left_(settings.hysteresis) {}

  [[nodiscard]] double value() const { return scale_; }
  // Called after each step. False: an overflow at the smallest scale, so no step can succeed.
  [[nodiscard]] bool step_done(bool overflow);

  // For a checkpoint, and from one.
  [[nodiscard]] LossScaleState state() const { return {scale_, hysteresis_left_, steps_, last_overflow_}; }
  void restore(const LossScaleState& saved);

 private:
  bool overflowed();

  const LossScaleSettings settings_;
  double scale_;
  int64_t hysteresis_left_;
  int64_t steps_ = 0, last_overflow_ = -1;
};

}  // namespace ddhost
