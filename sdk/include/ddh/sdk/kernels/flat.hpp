// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/kernels/flat.hpp: the operations of ddh.flatops over arrays in host memory, for devices and for code that
// computes on the host. Each gives the same bits at every vector width and for every division of a range. Arrays may be
// equal or disjoint, but must not overlap partly. Compile files that include this header with the flags of
// ddh/sdk/kernels/simd.hpp.
//
//   ddh::flat::cast(half, DDH_BF16, values, DDH_F32, numel);
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "ddh/abi.h"
#include "ddh/sdk/kernels/lowp.hpp"
#include "ddh/sdk/kernels/simd.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {
namespace flat {

// The chunk that one pass processes before the next pass follows: 16 KiB per fp32 array, so the second pass finds it in
// L1. A multiple of the 64-element grid.
inline constexpr uint64_t kChunkNumel = 4096;

// Elements in a block whose squares are summed in a fixed order; sums of squares add such blocks.
inline constexpr uint64_t kSquaresBlock = 64;

// Calls body(begin, numel) for the chunks of [0, numel), which have `most` elements, the last one perhaps less.
template <class Body>
void for_each_chunk(uint64_t numel, Body&& body, uint64_t most = kChunkNumel) {
  for (uint64_t begin = 0; begin < numel; begin += most) body(begin, numel - begin < most ? numel - begin : most);
}

// dst[i] = value, rounded to dtype. dtypes F32, BF16, F16, F64; other dtypes only with value 0. Else Error
// UNIMPLEMENTED.
inline void fill(void* dst, int32_t dtype, uint64_t numel, double value);

// dst[i] = src[i], rounded to nearest even, NaN stays NaN; between F32, BF16 and F16. Else Error UNIMPLEMENTED.
inline void cast(void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype, uint64_t numel);

inline void scale(float* dst, uint64_t numel, float factor);                // dst[i] *= factor
inline void add(float* dst, const float* src, uint64_t numel);              // dst[i] += src[i]
[[nodiscard]] inline bool any_nonfinite(const float* src, uint64_t numel);  // an infinity or a NaN

// Sum of squares of one block of up to 64 elements, in double:
//   s[j] += x[8k + j]^2 with k rising, then ((s0+s4) + (s2+s6)) + ((s1+s5) + (s3+s7)).
// Infinite or NaN exactly when an element is.
[[nodiscard]] inline double block_sum_of_squares(const float* x, uint64_t numel);

namespace detail {

inline constexpr uint64_t kLanes = 8;
inline constexpr uint64_t kSquaresGroup = 64;  // blocks per call of the kernel: 16 KiB

struct F32 {
  DDH_SIMD_BODY float from_f32(float value) { return value; }
  DDH_SIMD_BODY float to_f32(float value) { return value; }
};

template <class T>
struct Fill {
  DDH_SIMD_BODY void run(T* dst, T value, uint64_t numel) {
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) dst[i] = value;
  }
};

template <class To, class From, class T, class U>
struct Cast {
  DDH_SIMD_BODY void run(T* dst, const U* src, uint64_t numel) {
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) dst[i] = To::from_f32(From::to_f32(src[i]));
  }
};

template <class To, class From, class T, class U>
void run_cast(void* dst, const void* src, uint64_t numel) {
  Kernel<Cast<To, From, T, U>>::run(static_cast<T*>(dst), static_cast<const U*>(src), numel);
}

struct Scale {
  DDH_SIMD_BODY void run(float* dst, float factor, uint64_t numel) {
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) dst[i] *= factor;
  }
};

struct Add {
  DDH_SIMD_BODY void run(float* dst, const float* src, uint64_t numel) {
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) dst[i] = dst[i] + src[i];
  }
};

struct AnyNonfinite {
  DDH_SIMD_BODY bool run(const float* src, uint64_t numel) {
    uint32_t largest = 0;
    for (uint64_t i = 0; i < numel; ++i) {
      const uint32_t magnitude = std::bit_cast<uint32_t>(src[i]) & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
    return largest >= 0x7f800000u;
  }
};

// Four lanes in the compilers' own vector type: one register of 256 bits, or several smaller ones.
using Lanes4 = double __attribute__((vector_size(32)));
using Lanes2 = double __attribute__((vector_size(16)));

// Lanes 0..3 and 4..7 to ((s0+s4) + (s2+s6)) + ((s1+s5) + (s3+s7)): the upper half onto the lower one, three times.
DDH_SIMD_INLINE double sum_of_lanes(const Lanes4& lower, const Lanes4& upper) {
  const Lanes4 four = lower + upper;
  const Lanes2 two = __builtin_shufflevector(four, four, 0, 1) + __builtin_shufflevector(four, four, 2, 3);
  return two[0] + two[1];
}

DDH_SIMD_INLINE void load(Lanes4& lanes, const float* x) {
  double wide[4];
  for (int j = 0; j < 4; ++j) wide[j] = x[j];
  std::memcpy(&lanes, wide, sizeof lanes);
}

// Sums of full blocks: out[b] for the blocks at x + 64 b.
struct BlockSums {
  DDH_SIMD_BODY void run(const float* x, uint64_t n_blocks, double* out) {
    for (uint64_t b = 0; b < n_blocks; ++b) {
      Lanes4 lower{}, upper{};
      for (uint64_t k = 0; k < kSquaresBlock / kLanes; ++k) {
        Lanes4 u, v;
        load(u, x + b * kSquaresBlock + k * kLanes);
        load(v, x + b * kSquaresBlock + k * kLanes + 4);
        lower += u * u;
        upper += v * v;
      }
      out[b] = sum_of_lanes(lower, upper);
    }
  }
};

}  // namespace detail

inline void fill(void* dst, int32_t dtype, uint64_t numel, double value) {
  const auto f32 = static_cast<float>(value);
  switch (dtype) {
    case DDH_F32:
      return Kernel<detail::Fill<float>>::run(static_cast<float*>(dst), f32, numel);
    case DDH_F64:
      return Kernel<detail::Fill<double>>::run(static_cast<double*>(dst), value, numel);
    case DDH_BF16:
      return Kernel<detail::Fill<uint16_t>>::run(static_cast<uint16_t*>(dst), Bf16::from_f32(f32), numel);
    case DDH_F16:
      return Kernel<detail::Fill<uint16_t>>::run(static_cast<uint16_t*>(dst), F16::from_f32(f32), numel);
    default:
      break;
  }
  const uint64_t width = ddh_dtype_bytes(dtype);
  if (width == 0 || value != 0)
    fail(DDH_UNIMPLEMENTED, "fill has no dtype ", dtype, " with value ", value,
         "; use F32, BF16, F16 or F64, or the value 0");
  if (numel != 0) std::memset(dst, 0, numel * width);
}

inline void cast(void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype, uint64_t numel) {
  const auto pair = [](int32_t to, int32_t from) { return to * 16 + from; };
  switch (pair(dst_dtype, src_dtype)) {
    case pair(DDH_F32, DDH_F32):
      return detail::run_cast<detail::F32, detail::F32, float, float>(dst, src, numel);
    case pair(DDH_F32, DDH_BF16):
      return detail::run_cast<detail::F32, Bf16, float, uint16_t>(dst, src, numel);
    case pair(DDH_F32, DDH_F16):
      return detail::run_cast<detail::F32, F16, float, uint16_t>(dst, src, numel);
    case pair(DDH_BF16, DDH_F32):
      return detail::run_cast<Bf16, detail::F32, uint16_t, float>(dst, src, numel);
    case pair(DDH_F16, DDH_F32):
      return detail::run_cast<F16, detail::F32, uint16_t, float>(dst, src, numel);
    case pair(DDH_BF16, DDH_F16):
      return detail::run_cast<Bf16, F16, uint16_t, uint16_t>(dst, src, numel);
    case pair(DDH_F16, DDH_BF16):
      return detail::run_cast<F16, Bf16, uint16_t, uint16_t>(dst, src, numel);
    case pair(DDH_BF16, DDH_BF16):
    case pair(DDH_F16, DDH_F16):
      if (numel != 0) std::memmove(dst, src, numel * sizeof(uint16_t));
      return;
    default:
      fail(DDH_UNIMPLEMENTED, "cast has no way from dtype ", src_dtype, " to dtype ", dst_dtype,
           "; use F32, BF16 or F16");
  }
}

inline void scale(float* dst, uint64_t numel, float factor) { Kernel<detail::Scale>::run(dst, factor, numel); }

inline void add(float* dst, const float* src, uint64_t numel) { Kernel<detail::Add>::run(dst, src, numel); }

inline bool any_nonfinite(const float* src, uint64_t numel) {
  bool found = false;
  for_each_chunk(
      numel, [&](uint64_t begin, uint64_t n) { found = found || Kernel<detail::AnyNonfinite>::run(src + begin, n); });
  return found;
}

inline double block_sum_of_squares(const float* x, uint64_t numel) {
  double s[detail::kLanes] = {};
  for (uint64_t i = 0; i < numel; ++i) {
    const double value = x[i];
    s[i % detail::kLanes] += value * value;
  }
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

}  // namespace flat
}  // namespace DDH_HIDDEN
}  // namespace ddh
