// SPDX-License-Identifier: Apache-2.0
//
// ops/exponential.hpp: exp and the logistic function inside SIMD kernels (ddh/sdk/kernels/simd.hpp): no branch and no table, so
// an element has the same bits at every vector width.
#pragma once

#include <bit>
#include <cstdint>

#include "ddh/sdk/kernels/simd.hpp"

namespace ops {

inline constexpr float kLargestExponent = 88.72283F, kSmallestExponent = -87.33654F;

// x = n ln(2) + r with a whole n and |r| <= ln(2) / 2.
struct ReducedExponent {
  int32_t n;
  float r;
};

// For x from kSmallestExponent to kLargestExponent. ln(2) has two parts (Cody and Waite 1980).
DDH_SIMD_INLINE ReducedExponent reduced_exponent(float x) {
  constexpr float kLog2E = 1.44269504F, kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves a whole number in the lowest bits
  const float shifted = x * kLog2E + kRound, n = shifted - kRound;
  return {std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound), (x - n * kLn2High) - n * kLn2Low};
}

// exp(r) - 1 for |r| <= ln(2) / 2, by its Taylor polynomial of degree 7.
DDH_SIMD_INLINE float exponential_minus_one(float r) {
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  return (p * r) * r + r;
}

DDH_SIMD_INLINE float power_of_two(int32_t n) { return std::bit_cast<float>((n + 127) << 23); }

// exp(x), within 2 units in the last place for -87.3 < x < 88.7; below it is 0, above infinity, and NaN for NaN.
DDH_SIMD_INLINE float exponential(float x) {
  const float high = x > kLargestExponent ? kLargestExponent : x;
  const ReducedExponent e = reduced_exponent(high < kSmallestExponent ? kSmallestExponent : high);
  const int32_t half = e.n >> 1;  // 2^n in two factors, since n may be 128
  const float y = (exponential_minus_one(e.r) + 1.0F) * power_of_two(half) * power_of_two(e.n - half);
  const float bounded = x > kLargestExponent ? std::bit_cast<float>(0x7f800000) : x < kSmallestExponent ? 0.0F : y;
  return x != x ? x : bounded;
}

// The same for x < 88 and NaN, in fewer operations: 2^n is one factor.
DDH_SIMD_INLINE float exponential_below(float x) {
  const ReducedExponent e = reduced_exponent(x < kSmallestExponent ? kSmallestExponent : x);
  const float y = (exponential_minus_one(e.r) + 1.0F) * power_of_two(e.n);
  return x < kSmallestExponent ? 0.0F : y;
}

// 1 / (1 + exp(-x))
DDH_SIMD_INLINE float logistic(float x) { return 1.0F / (1.0F + exponential(-x)); }

}  // namespace ops
