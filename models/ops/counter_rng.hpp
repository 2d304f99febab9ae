// SPDX-License-Identifier: Apache-2.0
//
// ops/counter_rng.hpp: random bits as a function of a key and a counter, so that nothing depends on the order of draws.
#pragma once

#include <cstdint>

namespace ops {

// The finaliser of splitmix64 (Steele, Lea, Flood 2014).
inline uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9;
  x ^= x >> 27;
  x *= 0x94D049BB133111EB;
  return x ^ x >> 31;
}

// Draw number i (from 0) of the stream `key`.
inline uint64_t draw(uint64_t key, uint64_t i) { return mix(key + (i + 1) * 0x9E3779B97F4A7C15); }

// In [0, 1).
inline double draw_uniform(uint64_t key, uint64_t i) { return static_cast<double>(draw(key, i) >> 11) * 0x1p-53; }

}  // namespace ops
