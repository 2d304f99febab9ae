// SPDX-License-Identifier: Apache-2.0
//
// Options that several schedules have: the same name and meaning everywhere.
#pragma once

#include <cmath>
#include <cstdint>

#include "ddh/sdk/options.hpp"
#include "ddh/sdk/plugin.hpp"

// After a linear rise of this many steps the rate is the optimizer's.
inline constexpr ddh::Option kWarmupSteps = {
    .name = "warmup_steps",
    .type = "number",
    .default_value = "10",
    .rules = R"("minimum": 0, "x-unit": "steps")",
    .description = "steps over which the rate rises to its highest value; below 1: this part of all steps, rounded up",
};

// The value of warmup_steps in a run, or phase, of `steps` steps. A part is rounded up, as by transformers.
inline double warmup_steps(const ddh::SectionOptions& options, int64_t steps) {
  const double given = options.f64("warmup_steps");
  if (given >= 1 && given != std::floor(given))
    ddh::fail(DDH_INVALID_ARGUMENT, options.key("warmup_steps"), " = ", given,
              " is neither a number of steps nor a part of them; give an integer, or a number below 1");
  return given < 1 ? std::ceil(static_cast<double>(steps) * given) : given;
}

inline constexpr ddh::Option kWarmupFromZero = {"warmup_from_zero", "boolean", "false", "",
                                                "the warm-up begins at 0 and step k has lr (k - 1) / warmup_steps, as "
                                                "in transformers; else lr k / (warmup_steps + 1), "
                                                "as in nanoGPT"};

inline constexpr ddh::Option kDecaySteps = {
    .name = "decay_steps",
    .type = "integer|null",
    .default_value = "null",
    .rules = R"("minimum": 1, "x-unit": "steps")",
    .description = "step at which the rate reaches its end, warm-up included; null: all steps of the run or phase",
};

constexpr ddh::Option min_lr_ratio(std::string_view default_value) {
  return {"min_lr_ratio", "number", default_value, R"("minimum": 0, "maximum": 1)",
          "lowest rate divided by the optimizer's lr"};
}

// `default_value` empty: the user must give it.
constexpr ddh::Option min_lr(std::string_view default_value, std::string_view description) {
  return {"min_lr", "number", default_value, ddh::kAtLeast0, description};
}

inline constexpr ddh::Option kMaxLr = {"max_lr", "number|null", "null", ddh::kAtLeast0,
                                       "highest rate; null: the optimizer's lr"};

inline constexpr ddh::Option kCycleMomentum = {"cycle_momentum", "boolean", "false", R"("enum": [false])",
                                               "must be false: the optimizer's momentum never follows the rate"};
