// SPDX-License-Identifier: Apache-2.0
//
// engine/settings/eval_weights.hpp: train.eval_weights, the instance whose weights evaluations and files of weights have.
#pragma once

#include <string>
#include <vector>

#include "engine/services/optim/optimizers.hpp"

namespace ddhost {

// Marks the instance that is shown. `choice`: "auto" (the only one that shows weights), "trained" (none), or a name: the
// section of an optimizer, the id of a follower. Error: several show weights and none is named, or the name is of none.
void choose_shown(std::vector<OptimizerRef>& optimizers, const std::string& choice);

}  // namespace ddhost
