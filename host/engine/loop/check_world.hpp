// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/check_world.hpp: all ranks run the same plugins with the same configuration, or none runs.
#pragma once

#include <vector>

#include "engine/loop/run_plan.hpp"
#include "engine/services/comm.hpp"

namespace ddhost {

// Throws on every rank when one differs from rank 0, naming the odd rank and what differs. [collective]
void check_same_everywhere(const std::vector<Fingerprint>& fingerprints, const Comm& comm);

}  // namespace ddhost
