// SPDX-License-Identifier: Apache-2.0
//
// ops/elements.hpp: elements of fp32, and of bf16 as its bits, inside SIMD kernels that compute in fp32.
#pragma once

#include <cstdint>

#include "ddh/sdk/kernels/lowp.hpp"

namespace ops {

DDH_SIMD_INLINE float widened(float x) { return x; }
DDH_SIMD_INLINE float widened(uint16_t x) { return ddh::Bf16::to_f32(x); }
DDH_SIMD_INLINE void store(float* to, float x) { *to = x; }
DDH_SIMD_INLINE void store(uint16_t* to, float x) { *to = ddh::Bf16::from_f32(x); }

// Sums of a row have this many parts, which are joined by halves: the same bits at every vector width.
template <int64_t kParts>
DDH_SIMD_INLINE float joined(float* parts) {
  for (int64_t n = kParts / 2; n > 0; n /= 2) {
    DDH_SIMD_LOOP
    for (int64_t k = 0; k < n; ++k) parts[k] += parts[k + n];
  }
  return parts[0];
}

}  // namespace ops
