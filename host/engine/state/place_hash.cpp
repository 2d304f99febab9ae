// SPDX-License-Identifier: Apache-2.0
#include "engine/state/place_hash.hpp"

#include <algorithm>

#include "checkpoint/manifest.hpp"
#include "ddh/ddh.h"
#include "ddh/sdk/counter_rng.hpp"

namespace ddhost {

uint64_t place_hash(const char* values, uint64_t begin, uint64_t numel, uint64_t width) {
  uint64_t sum = 0;
  for (uint64_t done = 0; done < numel; done += DDH_GRID) {
    const uint64_t bytes = std::min<uint64_t>(DDH_GRID, numel - done) * width;
    sum += ddh::mix64(sum_of(values + done * width, bytes) + ddh::kMixStep * ((begin + done) / DDH_GRID + 1));
  }
  return sum;
}

}  // namespace ddhost
