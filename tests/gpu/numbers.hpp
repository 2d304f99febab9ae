// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/numbers.hpp: numbers for comparisons of bits.
#pragma once

#include <bit>
#include <catch2/catch.hpp>
#include <limits>
#include <vector>

#include "ddh/sdk/kernels/counter_rng.hpp"

namespace ddhost::test {

// Numbers of all magnitudes, with denormals, infinities, zeros of both signs and (if wanted) a NaN.
inline std::vector<float> numbers(uint64_t numel, uint64_t seed, bool with_nan) {
  std::vector<float> out(numel);
  for (uint64_t i = 0; i < numel; ++i) {
    auto bits = static_cast<uint32_t>(ddh::mix64(seed + i * ddh::kMixStep));
    if ((bits & 0x7f800000U) == 0x7f800000U) bits &= ~0x00800000U;
    out[i] = std::bit_cast<float>(bits);
  }
  const float special[] = {0.0F,
                           -0.0F,
                           std::numeric_limits<float>::denorm_min(),
                           std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::max(),
                           65519.9F,
                           6e-8F};
  for (size_t i = 0; i < std::size(special) && 9 * i < numel; ++i) out[9 * i] = special[i];
  if (with_nan) out[numel / 2] = std::numeric_limits<float>::quiet_NaN();
  return out;
}
// In [-1, 1).
inline std::vector<float> small_numbers(uint64_t numel, uint64_t seed) {
  std::vector<float> out(numel);
  for (uint64_t i = 0; i < numel; ++i)
    out[i] = static_cast<float>(static_cast<int64_t>(ddh::mix64(seed + i * ddh::kMixStep))) * 0x1p-63F;
  return out;
}

// Equal bits, but any NaN equals any NaN: a GPU does not keep a NaN's payload.
inline void check_same(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const bool both_nan = a[i] != a[i] && b[i] != b[i];
    if (both_nan || std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i])) continue;
    INFO("element " << i << " of " << a.size());
    CHECK(std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i]));
    return;
  }
}

}  // namespace ddhost::test
