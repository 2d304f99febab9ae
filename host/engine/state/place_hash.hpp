// SPDX-License-Identifier: Apache-2.0
//
// engine/state/place_hash.hpp: a hash of values and their places in a tensor. The hashes of the parts of a tensor add up
// to that of the whole, for any division at multiples of the grid.
#pragma once

#include <cstdint>

namespace ddhost {

// Of elements [begin, begin + numel) of a tensor, `width` bytes each. `begin` is a multiple of DDH_GRID.
uint64_t place_hash(const char* values, uint64_t begin, uint64_t numel, uint64_t width);

}  // namespace ddhost
