// SPDX-License-Identifier: Apache-2.0
//
// host/device/cpu/kernels.cpp: see kernels.hpp. Bodies are plain loops; ddh/sdk/simd.hpp compiles them for each width.
#include "device/cpu/kernels.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "ddh/sdk/lowp.hpp"
#include "ddh/sdk/plugin.hpp"
#include "ddh/sdk/simd.hpp"

namespace ddhost::cpu {
namespace {

using ddh::Kernel;

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

// Sum of kSources arrays in order; kPairs (four sources): (a + b) + (c + d).
template <uint32_t kSources, bool kPairs>
DDH_SIMD_INLINE float sum_of(const float* a, const float* b, const float* c, const float* d, uint64_t i) {
  if constexpr (kSources == 1) return a[i];
  if constexpr (kSources == 2) return a[i] + b[i];
  if constexpr (kSources == 3) return (a[i] + b[i]) + c[i];
  if constexpr (kSources == 4 && kPairs) return (a[i] + b[i]) + (c[i] + d[i]);
  if constexpr (kSources == 4 && !kPairs) return ((a[i] + b[i]) + c[i]) + d[i];
}

using Sources4 = std::array<const float*, 4>;
using Dsts4 = std::array<float*, 4>;

template <uint32_t kSources, bool kPairs, bool kAccumulate>
struct Sum {
  DDH_SIMD_BODY void run(float* dst, const Sources4& srcs, uint64_t numel) {
    const float *a = srcs[0], *b = srcs[1], *c = srcs[2], *d = srcs[3];
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) {
      const float sum = sum_of<kSources, kPairs>(a, b, c, d, i);
      dst[i] = kAccumulate ? dst[i] + sum : sum;
    }
  }
};

template <uint32_t kSources, bool kPairs>
struct SumToAll {
  DDH_SIMD_BODY void run(const Dsts4& dsts, const Sources4& srcs, uint64_t numel) {
    const float *a = srcs[0], *b = srcs[1], *c = srcs[2], *d = srcs[3];
    float *p = dsts[0], *q = dsts[1], *r = dsts[2], *s = dsts[3];
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) {
      const float sum = sum_of<kSources, kPairs>(a, b, c, d, i);
      p[i] = sum;
      q[i] = sum;
      if constexpr (kSources > 2) r[i] = sum;
      if constexpr (kSources > 3) s[i] = sum;
    }
  }
};

// dst = the source rounded to bf16, or dst += it.
template <bool kAccumulate>
struct SumRounded {
  DDH_SIMD_BODY void run(float* dst, const float* src, uint64_t numel) {
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) {
      const float rounded = ddh::Bf16::to_f32(ddh::Bf16::from_f32(src[i]));
      dst[i] = kAccumulate ? dst[i] + rounded : rounded;
    }
  }
};

// One pass over 1 to 4 sources; `pairs` only with four.
template <bool kAccumulate>
void sum_once(float* dst, const Sources4& srcs, uint32_t n, bool pairs, uint64_t numel) {
  switch (n) {
    case 1:
      return Kernel<Sum<1, false, kAccumulate>>::run(dst, srcs, numel);
    case 2:
      return Kernel<Sum<2, false, kAccumulate>>::run(dst, srcs, numel);
    case 3:
      return Kernel<Sum<3, false, kAccumulate>>::run(dst, srcs, numel);
    default:
      return pairs ? Kernel<Sum<4, true, kAccumulate>>::run(dst, srcs, numel)
                   : Kernel<Sum<4, false, kAccumulate>>::run(dst, srcs, numel);
  }
}

void sum_once_to_all(const Dsts4& dsts, const Sources4& srcs, uint32_t n, bool pairs, uint64_t numel) {
  switch (n) {
    case 2:
      return Kernel<SumToAll<2, false>>::run(dsts, srcs, numel);
    case 3:
      return Kernel<SumToAll<3, false>>::run(dsts, srcs, numel);
    default:
      return pairs ? Kernel<SumToAll<4, true>>::run(dsts, srcs, numel)
                   : Kernel<SumToAll<4, false>>::run(dsts, srcs, numel);
  }
}

Sources4 first_four(const SumSources& sources, uint64_t offset) {
  Sources4 srcs{};
  for (uint32_t k = 0; k < std::min(sources.n_srcs, 4u); ++k) srcs[k] = sources.srcs[k] + offset;
  return srcs;
}

// Blocks of two in four sources: the only grouping of up to four sources that is not their plain order.
bool in_pairs(const SumSources& sources) { return sources.n_srcs == 4 && sources.reduce_block == 2; }

// dst = sources [begin, end) in order; each pass takes up to three more on top of the partial sum. dst is no source.
void sum_in_order(float* dst, const SumSources& sources, uint32_t begin, uint32_t end, uint64_t offset,
                  uint64_t numel) {
  if (sources.round_to_bf16) {
    Kernel<SumRounded<false>>::run(dst, sources.srcs[begin] + offset, numel);
    for (uint32_t k = begin + 1; k < end; ++k) Kernel<SumRounded<true>>::run(dst, sources.srcs[k] + offset, numel);
    return;
  }
  const float* partial = sources.srcs[begin] + offset;
  for (uint32_t next = begin + 1; next < end || partial != dst;) {
    Sources4 srcs{partial, nullptr, nullptr, nullptr};
    uint32_t n = 1;
    while (n < 4 && next < end) srcs[n++] = sources.srcs[next++] + offset;
    sum_once<false>(dst, srcs, n, false, numel);
    partial = dst;
  }
}

// dst = the whole grouped sum of at most kChunkNumel elements. dst is no source.
void sum_chunk(float* dst, const SumSources& sources, uint64_t offset, uint64_t numel) {
  const uint32_t n = sources.n_srcs;
  const uint32_t block = sources.reduce_block == 0 ? n : std::min(sources.reduce_block, n);
  sum_in_order(dst, sources, 0, block, offset, numel);
  if (block == n) return;
  alignas(64) std::array<float, kChunkNumel> part;
  for (uint32_t begin = block; begin < n;) {
    const uint32_t end = begin + std::min(block, n - begin);
    sum_in_order(part.data(), sources, begin, end, offset, numel);
    add(dst, part.data(), numel);
    begin = end;
  }
}

void check(const SumSources& sources) {
  if (sources.n_srcs == 0) ddh::fail(DDH_INVALID_ARGUMENT, "a sum over ranks has no source; pass at least one");
}

}  // namespace

void fill(void* dst, int32_t dtype, uint64_t numel, double value) {
  const auto f32 = static_cast<float>(value);
  switch (dtype) {
    case DDH_F32:
      return Kernel<Fill<float>>::run(static_cast<float*>(dst), f32, numel);
    case DDH_F64:
      return Kernel<Fill<double>>::run(static_cast<double*>(dst), value, numel);
    case DDH_BF16:
      return Kernel<Fill<uint16_t>>::run(static_cast<uint16_t*>(dst), ddh::Bf16::from_f32(f32), numel);
    case DDH_F16:
      return Kernel<Fill<uint16_t>>::run(static_cast<uint16_t*>(dst), ddh::F16::from_f32(f32), numel);
    default:
      break;
  }
  const uint64_t width = ddh_dtype_bytes(dtype);
  if (width == 0 || value != 0)
    ddh::fail(DDH_UNIMPLEMENTED, "fill has no dtype ", dtype, " with value ", value,
              "; use F32, BF16, F16 or F64, or the value 0");
  if (numel != 0) std::memset(dst, 0, numel * width);
}

void cast(void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype, uint64_t numel) {
  using ddh::Bf16;
  using ddh::F16;
  const auto pair = [](int32_t to, int32_t from) { return to * 16 + from; };
  switch (pair(dst_dtype, src_dtype)) {
    case pair(DDH_F32, DDH_F32):
      return run_cast<F32, F32, float, float>(dst, src, numel);
    case pair(DDH_F32, DDH_BF16):
      return run_cast<F32, Bf16, float, uint16_t>(dst, src, numel);
    case pair(DDH_F32, DDH_F16):
      return run_cast<F32, F16, float, uint16_t>(dst, src, numel);
    case pair(DDH_BF16, DDH_F32):
      return run_cast<Bf16, F32, uint16_t, float>(dst, src, numel);
    case pair(DDH_F16, DDH_F32):
      return run_cast<F16, F32, uint16_t, float>(dst, src, numel);
    case pair(DDH_BF16, DDH_F16):
      return run_cast<Bf16, F16, uint16_t, uint16_t>(dst, src, numel);
    case pair(DDH_F16, DDH_BF16):
      return run_cast<F16, Bf16, uint16_t, uint16_t>(dst, src, numel);
    case pair(DDH_BF16, DDH_BF16):
    case pair(DDH_F16, DDH_F16):
      if (numel != 0) std::memmove(dst, src, numel * sizeof(uint16_t));
      return;
    default:
      ddh::fail(DDH_UNIMPLEMENTED, "cast has no way from dtype ", src_dtype, " to dtype ", dst_dtype,
                "; use F32, BF16 or F16");
  }
}

void scale(float* dst, uint64_t numel, float factor) { Kernel<Scale>::run(dst, factor, numel); }

void add(float* dst, const float* src, uint64_t numel) {
  Kernel<Sum<1, false, true>>::run(dst, Sources4{src, nullptr, nullptr, nullptr}, numel);
}

void copy(float* dst, const float* src, uint64_t numel) {
  Kernel<Sum<1, false, false>>::run(dst, Sources4{src, nullptr, nullptr, nullptr}, numel);
}

void round_to_bf16(float* values, uint64_t numel) { Kernel<SumRounded<false>>::run(values, values, numel); }

bool any_nonfinite(const float* src, uint64_t numel) {
  bool found = false;
  for_each_chunk(numel,
                 [&](uint64_t begin, uint64_t n) { found = found || Kernel<AnyNonfinite>::run(src + begin, n); });
  return found;
}

void ordered_sum(float* dst, const SumSources& sources, uint64_t offset, uint64_t numel, bool accumulate) {
  check(sources);
  if (sources.n_srcs <= 4 && !sources.round_to_bf16) {
    const Sources4 srcs = first_four(sources, offset);
    return accumulate ? sum_once<true>(dst, srcs, sources.n_srcs, in_pairs(sources), numel)
                      : sum_once<false>(dst, srcs, sources.n_srcs, in_pairs(sources), numel);
  }
  alignas(64) std::array<float, kChunkNumel> sum;
  for_each_chunk(numel, [&](uint64_t begin, uint64_t n) {
    sum_chunk(sum.data(), sources, offset + begin, n);
    accumulate ? add(dst + begin, sum.data(), n) : copy(dst + begin, sum.data(), n);
  });
}

void ordered_sum_to_all(float* const* dsts, uint32_t n_dsts, const SumSources& sources, uint64_t offset,
                        uint64_t numel) {
  check(sources);
  if (n_dsts == sources.n_srcs && n_dsts >= 2 && n_dsts <= 4 && !sources.round_to_bf16) {
    Dsts4 at{};
    for (uint32_t k = 0; k < n_dsts; ++k) at[k] = dsts[k] + offset;
    return sum_once_to_all(at, first_four(sources, offset), n_dsts, in_pairs(sources), numel);
  }
  alignas(64) std::array<float, kChunkNumel> sum;
  for_each_chunk(numel, [&](uint64_t begin, uint64_t n) {
    ordered_sum(sum.data(), sources, offset + begin, n, false);
    for (uint32_t k = 0; k < n_dsts; ++k) copy(dsts[k] + offset + begin, sum.data(), n);
  });
}

}  // namespace ddhost::cpu
