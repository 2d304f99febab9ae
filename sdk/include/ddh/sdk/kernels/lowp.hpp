// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/kernels/lowp.hpp: conversions between fp32 and the 16-bit formats, for use inside SIMD kernels: no branch, no
// table. Rounding is to nearest even; a NaN stays a NaN (made quiet, sign kept), as the processors' own instructions do
// it.
#pragma once

#include <bit>
#include <cstdint>

#include "ddh/sdk/kernels/simd.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// 8 bits of exponent, 7 of fraction: the upper half of an fp32.
struct Bf16 {
  static constexpr int32_t kDtype = DDH_BF16;

  DDH_SIMD_BODY uint16_t from_f32(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40u;
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return static_cast<uint16_t>(is_nan ? quiet : rounded);
  }

  DDH_SIMD_BODY float to_f32(uint16_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

  DDH_SIMD_BODY void store(uint16_t* dst, uint64_t i, float value) { dst[i] = from_f32(value); }
};

// IEEE half: 5 bits of exponent, 10 of fraction.
struct F16 {
  static constexpr int32_t kDtype = DDH_F16;

  DDH_SIMD_BODY uint16_t from_f32(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    // From 2^-14 on: move the exponent's bias from 127 to 15 and round the 13 dropped bits.
    const uint32_t normal = (magnitude + 0xc8000fffu + ((magnitude >> 13) & 1u)) >> 13;
    // Below: adding 0.5 leaves the rounded multiple of 2^-24 in the fraction's lowest bits.
    const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    uint32_t half = magnitude < 0x38800000u ? small : normal;
    half = magnitude >= 0x477ff000u ? 0x7c00u : half;  // rounds to 65536 or more: infinite
    half = magnitude > 0x7f800000u ? nan : half;
    return static_cast<uint16_t>(half | ((bits >> 16) & 0x8000u));
  }

  DDH_SIMD_BODY float to_f32(uint16_t value) {
    const uint32_t magnitude = value & 0x7fffu;
    const uint32_t sign = (static_cast<uint32_t>(value) & 0x8000u) << 16;
    const uint32_t normal = (magnitude << 13) + 0x38000000u;
    // A denormal half becomes the fraction of a number in [2^-14, 2^-13), less its leading one.
    const float small = std::bit_cast<float>((magnitude << 13) + 0x38800000u) - std::bit_cast<float>(0x38800000u);
    const uint32_t special = (magnitude << 13) | 0x7f800000u | (magnitude > 0x7c00u ? 0x400000u : 0u);
    uint32_t bits = magnitude < 0x400u ? std::bit_cast<uint32_t>(small) : normal;
    bits = magnitude >= 0x7c00u ? special : bits;
    return std::bit_cast<float>(bits | sign);
  }

  DDH_SIMD_BODY void store(uint16_t* dst, uint64_t i, float value) { dst[i] = from_f32(value); }
};

// For updates without a low-precision copy.
struct NoLowp {
  DDH_SIMD_BODY void store(uint16_t*, uint64_t, float) {}
};

// Calls body(Store()) with the format of the copy: Bf16, F16, or NoLowp.
template <class Body>
void with_lowp(const void* lowp, int32_t dtype, Body&& body) {
  if (lowp == nullptr)
    body(NoLowp());
  else if (dtype == DDH_BF16)
    body(Bf16());
  else
    body(F16());
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
