// SPDX-License-Identifier: Apache-2.0
//
// ops/exponential.hpp: exp and the logistic function inside SIMD kernels (ddh/sdk/kernels/simd.hpp): no branch and no table, so
// an element has the same bits at every vector width.
#pragma once

#include <bit>
#include <cstdint>

#include "ddh/sdk/kernels/simd.hpp"

namespace ops {

// exp(r) - 1 for |r| <= ln(2) / 2, by its Taylor polynomial of degree 7.
DDH_SIMD_INLINE float tail_of_exponential(float r) {
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  return (p * r) * r + r;
}

// exp(x), within 2 units in the last place for -87.3 < x < 88.7; below it is 0, above infinity, and NaN for NaN.
// 2^n exp(r), with ln(2) in two parts (Cody and Waite 1980).
DDH_SIMD_INLINE float exponential(float x) {
  constexpr float kLog2E = 1.44269504F, kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves a whole number in the lowest bits
  const float high = x > 88.72283F ? 88.72283F : x, in = high < -87.33654F ? -87.33654F : high;
  const float shifted = in * kLog2E + kRound, n = shifted - kRound;
  const float r = (in - n * kLn2High) - n * kLn2Low;
  // 2^n in two factors, since n may be 128.
  const int32_t whole = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound), half = whole >> 1;
  const float a = std::bit_cast<float>((half + 127) << 23), b = std::bit_cast<float>((whole - half + 127) << 23);
  const float y = (tail_of_exponential(r) + 1.0F) * a * b;
  const float bounded = x > 88.72283F ? std::bit_cast<float>(0x7f800000) : x < -87.33654F ? 0.0F : y;
  return x != x ? x : bounded;
}

// The same for x < 88 and NaN, in fewer operations: 2^n is one factor.
DDH_SIMD_INLINE float exponential_below(float x) {
  constexpr float kLog2E = 1.44269504F, kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 12582912.0F;
  const float in = x < -87.33654F ? -87.33654F : x, shifted = in * kLog2E + kRound, n = shifted - kRound;
  const float r = (in - n * kLn2High) - n * kLn2Low;
  const float power =
      std::bit_cast<float>((std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound) + 127) << 23);
  const float y = (tail_of_exponential(r) + 1.0F) * power;
  return x < -87.33654F ? 0.0F : y;
}

// 1 / (1 + exp(-x))
DDH_SIMD_INLINE float logistic(float x) { return 1.0F / (1.0F + exponential(-x)); }

}  // namespace ops
