// SPDX-License-Identifier: Apache-2.0
//
// run/lr_schedule.hpp: the learning rate of a step.
#pragma once

#include <cstdint>

#include "config/config.hpp"

namespace ddhost {

// Linear warmup over warmup_steps, then: constant; linear or cosine down to min_lr at decay_steps, min_lr from there
// (the cosine is the one that GPT-2 reproductions use: lr * (step) / (warmup + 1) in the warmup).
class LrSchedule {
 public:
  explicit LrSchedule(const Config& config);
  [[nodiscard]] double at(int64_t step) const;  // counts from 1

 private:
  enum class Type { kConstant, kLinear, kCosine };
  Type type_;
  double lr_, min_lr_, warmup_, decay_;
};

}  // namespace ddhost
