// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/kernels/counter_rng.hpp: counter-based random numbers: value i of a named stream is computed without the
// values before it. So each rank draws only its ranges, and the numbers do not depend on world size or order.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>
#include <utility>

#include "ddh/sdk/kernels/simd.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection that passes statistical tests on counters.
DDH_SIMD_INLINE constexpr uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9;
  x ^= x >> 27;
  x *= 0x94D049BB133111EB;
  return x ^ x >> 31;
}

// The increment of splitmix64: 2^64 divided by the golden ratio.
inline constexpr uint64_t kMixStep = 0x9E3779B97F4A7C15;

inline constexpr uint64_t fnv1a(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325;
  for (const char c : text) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return h;
}

class CounterRng {
 public:
  CounterRng(uint64_t seed, std::string_view stream) : key_(mix64(mix64(seed + kMixStep) ^ fnv1a(stream))) {}

  // For code that computes bits() itself.
  [[nodiscard]] uint64_t key() const { return key_; }
  [[nodiscard]] uint64_t bits(uint64_t i) const { return bits_at(key_, i); }
  // The same for a stream with this key, for kernels.
  DDH_SIMD_BODY constexpr uint64_t bits_at(uint64_t key, uint64_t i) { return mix64(key + (i + 1) * kMixStep); }
  // In [0, 1), 53 bits.
  [[nodiscard]] double uniform(uint64_t i) const { return static_cast<double>(bits(i) >> 11) * 0x1p-53; }
  // Two independent standard normals (Box and Muller 1958); tails end at 6.8 deviations.
  [[nodiscard]] std::pair<float, float> normal_pair(uint64_t i) const {
    const uint64_t b = bits(i);
    const float u = (static_cast<float>(b >> 32) + 0.5F) * 0x1p-32F;  // (0, 1]
    const float angle = static_cast<float>(b & 0xFFFFFFFF) * (0x1p-31F * std::numbers::pi_v<float>);
    const float radius = std::sqrt(-2.0F * std::log(u));
    return {radius * std::cos(angle), radius * std::sin(angle)};
  }

 private:
  uint64_t key_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
