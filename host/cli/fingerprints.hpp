// SPDX-License-Identifier: Apache-2.0
//
// cli/fingerprints.hpp: numbers by which the ranks of a run find out that one of them runs something else.
#pragma once

#include <vector>

#include "cli/prepare.hpp"

namespace ddhost {

// Of the plugins (their builds included), the ABI and the configuration.
std::vector<Fingerprint> fingerprints_of(const PreparedRun& run);

}  // namespace ddhost
