// SPDX-License-Identifier: Apache-2.0
//
// flat_kernels.hpp: the flat operations of the device as kernels, one source for nvcc and g++ (device_kernel.hpp).
#pragma once

#include <bit>
#include <cstdint>

#include "ddh/sdk/kernels/device_kernel.hpp"
#include "ddh/sdk/kernels/lowp.hpp"

namespace cuda DDH_HIDDEN {

using ddh::GridPlace;

template <class T>
struct Fill {
  T* dst;
  uint64_t numel;
  T value;
  DDH_SIMD_INLINE void operator()(const GridPlace& at) const {
    for (uint64_t i = at.first(); i < numel; i += at.stride()) dst[i] = value;
  }
};

// The formats of a cast.
struct F32 {
  using Stored = float;
  DDH_SIMD_BODY float to_f32(float value) { return value; }
  DDH_SIMD_BODY float from_f32(float value) { return value; }
};
struct Bf16 : ddh::Bf16 {
  using Stored = uint16_t;
};
struct F16 : ddh::F16 {
  using Stored = uint16_t;
};

template <class To, class From>
struct Cast {
  typename To::Stored* dst;
  const typename From::Stored* src;
  uint64_t numel;
  DDH_SIMD_INLINE void operator()(const GridPlace& at) const {
    for (uint64_t i = at.first(); i < numel; i += at.stride()) dst[i] = To::from_f32(From::to_f32(src[i]));
  }
};

struct Scale {
  float* dst;
  uint64_t numel;
  float factor;
  DDH_SIMD_INLINE void operator()(const GridPlace& at) const {
    for (uint64_t i = at.first(); i < numel; i += at.stride()) dst[i] = dst[i] * factor;
  }
};

struct Add {
  float* dst;
  const float* src;
  uint64_t numel;
  DDH_SIMD_INLINE void operator()(const GridPlace& at) const {
    for (uint64_t i = at.first(); i < numel; i += at.stride()) dst[i] = dst[i] + src[i];
  }
};

// The sum of the sources in order within blocks of `reduce_block`, then the blocks in order.
struct OrderedSum {
  static constexpr uint32_t kMostSources = 64;
  float* dst;
  uint64_t numel;
  uint32_t n_srcs, reduce_block;
  uint32_t accumulates, rounds;  // start from dst; round the sources to bf16
  const float* srcs[kMostSources];

  [[nodiscard]] DDH_SIMD_INLINE float source(uint32_t k, uint64_t i) const {
    const float value = srcs[k][i];
    return rounds != 0 ? ddh::Bf16::to_f32(ddh::Bf16::from_f32(value)) : value;
  }
  DDH_SIMD_INLINE void operator()(const GridPlace& at) const {
    for (uint64_t i = at.first(); i < numel; i += at.stride()) {
      float sum = accumulates != 0 ? dst[i] : 0.0F;
      for (uint32_t begin = 0; begin < n_srcs; begin += reduce_block) {
        const uint32_t end = n_srcs - begin < reduce_block ? n_srcs : begin + reduce_block;
        float part = source(begin, i);
        for (uint32_t k = begin + 1; k < end; ++k) part = part + source(k, i);
        sum = begin == 0 && accumulates == 0 ? part : sum + part;
      }
      dst[i] = sum;
    }
  }
};

// The exact sum of squares (docs/numerics.md): each 64-element block is summed in a fixed order in double, and the sums
// of blocks are added without rounding, to limbs of 32 bits: limb i weighs 2^(32 i - 320). Integer sums don't depend on
// the order in which threads add them.
struct ExactSquares {
  static constexpr uint32_t kLimbs = 20, kInfinite = 20, kNan = 21, kFirst = 22, kWords = 23;
  static constexpr uint64_t kBlock = 64;  // elements
  static constexpr uint64_t kExponentOfBit0 = 755, kExponentNonfinite = 0x7ff;
  const float* src;
  uint64_t numel;
  uint64_t* words;  // limbs, infinite blocks, NaN blocks, index of the first block that is not finite

  // Three adjacent limbs in registers, because the sums of adjacent blocks mostly go to the same.
  struct Limbs {
    uint64_t first = 0, sums[3] = {};
  };
  DDH_SIMD_INLINE void flush(Limbs& limbs) const {
    for (uint32_t i = 0; i < 3; ++i) {
      if (limbs.sums[i] != 0) ddh::add_shared(words + limbs.first + i, limbs.sums[i]);
      limbs.sums[i] = 0;
    }
  }
  // Four elements in one load.
  struct alignas(16) Four {
    float x[4];
  };
  [[nodiscard]] DDH_SIMD_INLINE double block_sum(uint64_t begin) const {
    double s[8] = {};
    const float* const at = src + begin;
    if (begin + kBlock <= numel && reinterpret_cast<uintptr_t>(at) % sizeof(Four) == 0) {
      for (uint64_t k = 0; k < kBlock; k += 8) {
        const Four four[2] = {*reinterpret_cast<const Four*>(at + k), *reinterpret_cast<const Four*>(at + k + 4)};
        for (uint32_t j = 0; j < 8; ++j) {
          const auto x = static_cast<double>(four[j / 4].x[j % 4]);
          s[j] = s[j] + x * x;
        }
      }
    } else {
      for (uint64_t k = 0; k < kBlock; ++k) {
        const double x = begin + k < numel ? static_cast<double>(at[k]) : 0.0;
        s[k % 8] = s[k % 8] + x * x;
      }
    }
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
  }
  DDH_SIMD_INLINE void add(double sum, uint64_t block, Limbs& limbs) const {
    const uint64_t bits = std::bit_cast<uint64_t>(sum);
    const uint64_t exponent = bits >> 52;  // sums are not negative
    uint64_t mantissa = (bits & 0xfffffffffffffU) | 0x10000000000000U;
    if (exponent == 0) return;
    if (exponent >= kExponentNonfinite) {
      ddh::add_shared(words + ((bits << 12) != 0 ? kNan : kInfinite), 1);
      ddh::min_shared(words + kFirst, block);
      return;
    }
    uint64_t position = 0;  // of the mantissa's lowest bit, in bits of the limbs
    if (exponent < kExponentOfBit0)
      mantissa >>= kExponentOfBit0 - exponent;  // bits below 2^-320 are zero
    else
      position = exponent - kExponentOfBit0;
    const uint64_t limb = position / 32, shift = position % 32;
    if (limb != limbs.first) {
      flush(limbs);
      limbs.first = limb;
    }
    const uint64_t lower = (mantissa & 0xffffffffU) << shift, upper = (mantissa >> 32) << shift;
    limbs.sums[0] += lower & 0xffffffffU;
    limbs.sums[1] += (lower >> 32) + (upper & 0xffffffffU);
    limbs.sums[2] += upper >> 32;
  }
  DDH_SIMD_INLINE void operator()(const GridPlace& at) const {
    const uint64_t blocks = (numel + kBlock - 1) / kBlock;
    Limbs limbs;
    for (uint64_t b = at.first(); b < blocks; b += at.stride()) add(block_sum(b * kBlock), b, limbs);
    if (ddh::sum_over_warp(limbs.first, limbs.sums)) flush(limbs);
  }
};

}  // namespace DDH_HIDDEN
