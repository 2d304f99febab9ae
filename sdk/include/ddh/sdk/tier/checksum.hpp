// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/tier/checksum.hpp: the checksum of a block of bytes, XXH3 with 64 bits (xxhash.com). It detects damage, but not
// an attack. It is the same on every machine.
#pragma once

#include <cstdint>

#include "ddh/sdk/structs.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

uint64_t checksum64(const void* data, uint64_t bytes);

}  // namespace DDH_HIDDEN
}  // namespace ddh
