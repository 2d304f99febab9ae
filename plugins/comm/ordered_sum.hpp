// SPDX-License-Identifier: Apache-2.0
//
// Sum, maximum and minimum over ranks in one fixed order: rank order inside blocks of `block` ranks, then the blocks in
// order, added to the initial value. The order, and so the result, does not depend on vector width, chunk or rank.
#pragma once

#include <cstdint>

namespace ordered_sum {

struct OrderedReduce {
  int32_t dtype;              // F32, F64, BF16 (summed in fp32, rounded once), I32, I64 (wrap around)
  int32_t op;                 // DDH_SUM, DDH_MAX, DDH_MIN; a NaN in any rank stays
  uint32_t block;             // ranks per block; at least 1
  uint32_t n_sources;         // one per rank, in rank order
  const void* const* source;  // a destination may be one of the sources, at the same address
  uint32_t n_destinations;
  void* const* destination;  // each gets the result
  uint64_t count;            // elements
  const void* initial;       // initial value of the fold; nullptr: the first source; may be a destination
};

[[nodiscard]] bool can_reduce(int32_t dtype, int32_t op);

// Requires can_reduce.
void ordered_reduce(const OrderedReduce& args);

}  // namespace ordered_sum
