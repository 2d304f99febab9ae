// SPDX-License-Identifier: Apache-2.0
//
// cli/fingerprints.hpp: hashes that the ranks compare, to detect that one of them runs something else.
#pragma once

#include <vector>

#include "cli/prepare.hpp"

namespace ddhost {

// Hashes of the plugins (with their builds), the ABI and the configuration.
std::vector<Fingerprint> fingerprints_of(const PreparedRun& run);

}  // namespace ddhost
