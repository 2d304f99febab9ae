// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/check_world.hpp: checks that all ranks run the same plugins with the same configuration on the same data.
#pragma once

#include <vector>

#include "ddh/kind/model.h"
#include "engine/loop/run_plan.hpp"
#include "engine/services/comm.hpp"

namespace ddhost {

// Throws on every rank if one differs from rank 0, and names that rank and the difference. [collective]
void check_same_everywhere(const std::vector<Fingerprint>& fingerprints, const Comm& comm);

// The numbers of samples of the model's programs and the meaning of its ids, to compare them in the same way.
std::vector<Fingerprint> data_fingerprints(const ddh_model_desc& model);

}  // namespace ddhost
