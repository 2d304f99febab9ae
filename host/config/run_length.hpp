// SPDX-License-Identifier: Apache-2.0
//
// config/run_length.hpp: how long a run is, and how often it evaluates: in steps or in epochs.
#pragma once

#include "config/config.hpp"

namespace ddhost {

// Where epochs are given, train.steps is null, so that what a dry run prints is a config file. Error: steps and epochs are
// both given. `trains`: false for `eval` and `generate`, where train.programs takes the place of train.phases, and no option
// says when to evaluate.
void settle_run_length(Config& config, bool trains);

}  // namespace ddhost
