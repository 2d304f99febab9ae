// SPDX-License-Identifier: Apache-2.0
//
// ops/elements.hpp: elements and sums of rows inside SIMD kernels. Kernels compute in fp32; elements in memory may have
// 16 bits.
#pragma once

#include <cstdint>

#include "ddh/sdk/kernels/lowp.hpp"

namespace ops {

// An element of fp16. One of bf16 is its bits, uint16_t.
struct Half {
  uint16_t bits;
};

DDH_SIMD_INLINE float widened(float x) { return x; }
DDH_SIMD_INLINE float widened(uint16_t x) { return ddh::Bf16::to_f32(x); }
DDH_SIMD_INLINE float widened(Half x) { return ddh::F16::to_f32(x.bits); }
DDH_SIMD_INLINE void store(float* to, float x) { *to = x; }
DDH_SIMD_INLINE void store(uint16_t* to, float x) { *to = ddh::Bf16::from_f32(x); }
DDH_SIMD_INLINE void store(Half* to, float x) { to->bits = ddh::F16::from_f32(x); }

// The sum of term.at(i) for i below `width`. kParts sums, a power of two, take turns; then the upper half is added to the lower
// one until one sum is left. So the bits are the same at every vector width.
template <int64_t kParts, class Term>
DDH_SIMD_INLINE float row_sum(const Term& term, int64_t width) {
  static_assert((kParts & (kParts - 1)) == 0);
  float parts[kParts] = {};
  int64_t i = 0;
  for (; i + kParts <= width; i += kParts) {
    DDH_SIMD_LOOP
    for (int64_t k = 0; k < kParts; ++k) parts[k] += term.at(i + k);
  }
  for (int64_t k = 0; i + k < width; ++k) parts[k] += term.at(i + k);
  for (int64_t n = kParts / 2; n > 0; n /= 2) {
    DDH_SIMD_LOOP
    for (int64_t k = 0; k < n; ++k) parts[k] += parts[k + n];
  }
  return parts[0];
}

}  // namespace ops
