// SPDX-License-Identifier: Apache-2.0
//
// tests/equivalence/precisions.hpp: the precision of a model's runs by the number of ranks, so that three worlds have all
// three: fp32, bf16 with units that are computed again in the backward, fp16 with a dynamic loss scale.
#pragma once

#include "equivalence/variants.hpp"

namespace ddhost::test {

inline Options precision_of(int world) {
  if (world == 1) return {"precision.compute=fp32"};
  if (world == 2) return {"precision.compute=bf16", "train.recompute=1"};
  return {"precision.compute=fp16", "precision.initial_scale_power=10"};
}

// A step that is skipped because of an overflow compares nothing.
inline void check_took_its_steps(const Result& result) {
  INFO(result.command);
  for (const nlohmann::json& step : result.record.steps) CHECK_FALSE(step.value("skipped", false));
}

}  // namespace ddhost::test
