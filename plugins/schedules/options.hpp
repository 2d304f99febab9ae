// SPDX-License-Identifier: Apache-2.0
//
// Options that several schedules have, as parts of a schema: the same name, meaning and aliases everywhere. A schedule
// combines the parts that it uses: R"({"properties": {)" WARMUP_STEPS "," DECAY_STEPS R"(}, "x-aliases": {...}})".
#pragma once

// After a linear rise of this many steps the rate is the optimizer's.
#define WARMUP_STEPS                                                                       \
  R"("warmup_steps": {"type": "integer", "default": 10, "minimum": 0, "x-unit": "steps",)" \
  R"( "description": "steps over which the rate rises to its highest value"})"
#define WARMUP_ALIASES R"("warmup_num_steps": {"key": "warmup_steps"}, "num_warmup_steps": {"key": "warmup_steps"})"

#define DECAY_STEPS                                                                                   \
  R"("decay_steps": {"type": ["integer", "null"], "default": null, "minimum": 1, "x-unit": "steps",)" \
  R"( "description": "step at which the rate reaches its end, warm-up included; null: train.steps"})"
#define DECAY_ALIASES                                                                    \
  R"("total_num_steps": {"key": "decay_steps"}, "total_steps": {"key": "decay_steps"},)" \
  R"("num_training_steps": {"key": "decay_steps"})"

#define MIN_LR_RATIO(DEFAULT)                                                                    \
  R"("min_lr_ratio": {"type": "number", "default": )" DEFAULT R"(, "minimum": 0, "maximum": 1,)" \
  R"( "description": "lowest rate divided by the optimizer's lr"})"
#define MIN_LR_RATIO_ALIASES R"("cos_min_ratio": {"key": "min_lr_ratio"})"

#define MIN_LR(DEFAULT, DESCRIPTION) \
  R"("min_lr": {"type": "number", )" DEFAULT R"("minimum": 0, "description": ")" DESCRIPTION R"("})"
#define MIN_LR_ALIASES R"("warmup_min_lr": {"key": "min_lr"}, "cycle_min_lr": {"key": "min_lr"})"

#define MAX_LR                                                               \
  R"("max_lr": {"type": ["number", "null"], "default": null, "minimum": 0,)" \
  R"( "description": "highest rate; null: the optimizer's lr"})"
#define MAX_LR_ALIASES R"("warmup_max_lr": {"key": "max_lr"}, "cycle_max_lr": {"key": "max_lr"})"

#define CYCLE_MOMENTUM                                                          \
  R"("cycle_momentum": {"type": "boolean", "enum": [false], "default": false,)" \
  R"( "description": "must be false: the optimizer's momentum never follows the rate"})"
