// SPDX-License-Identifier: Apache-2.0
//
// engine/numerics/kernels.cpp: see kernels.hpp. Bodies are plain loops; ddh/sdk/kernels/simd.hpp compiles them for each
// width.
#include "engine/numerics/kernels.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "ddh/sdk/kernels/flat.hpp"
#include "ddh/sdk/kernels/lowp.hpp"
#include "ddh/sdk/kernels/simd.hpp"
#include "ddh/sdk/plugin.hpp"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace ddhost::kernels {
namespace {

using ddh::Kernel;

using Sources4 = std::array<const float*, 4>;
using Dsts4 = std::array<float*, 4>;

// Sums of up to four sources at element i, or (T = __m128) at the four from i on. They are recursive templates, because a SIMD
// body must not contain calls.
template <class T, uint32_t k, bool kRound>
DDH_SIMD_INLINE T source_at(const float* a, const float* b, const float* c, const float* d, uint64_t i) {
  const float* const source = k == 0 ? a : k == 1 ? b : k == 2 ? c : d;
  if constexpr (std::is_same_v<T, float>) {
    return kRound ? ddh::Bf16::to_f32(ddh::Bf16::from_f32(source[i])) : source[i];
  } else {
    static_assert(!kRound, "vectors are not rounded");
    T four;
    std::memcpy(&four, source + i, sizeof four);
    return four;
  }
}
// Sources [kBegin, kEnd) in order.
template <class T, uint32_t kBegin, uint32_t kEnd, bool kRound>
DDH_SIMD_INLINE T block_sum(const float* a, const float* b, const float* c, const float* d, uint64_t i) {
  const T last = source_at<T, kEnd - 1, kRound>(a, b, c, d, i);
  if constexpr (kEnd - kBegin == 1) {
    return last;
  } else {
    return block_sum<T, kBegin, kEnd - 1, kRound>(a, b, c, d, i) + last;
  }
}
// Sources [0, kEnd) in blocks of kBlock, added to `start` if there is one.
template <class T, uint32_t kEnd, uint32_t kBlock, bool kFromStart, bool kRound>
DDH_SIMD_INLINE T sum_of(T start, const float* a, const float* b, const float* c, const float* d, uint64_t i) {
  constexpr uint32_t kBegin = (kEnd - 1) / kBlock * kBlock;
  const T last = block_sum<T, kBegin, kEnd, kRound>(a, b, c, d, i);
  if constexpr (kBegin > 0) {
    return sum_of<T, kBegin, kBlock, kFromStart, kRound>(start, a, b, c, d, i) + last;
  } else if constexpr (kFromStart) {
    return start + last;
  } else {
    return last;
  }
}

template <uint32_t kSources, uint32_t kBlock, bool kFromDst, bool kRound>
struct Sum {
  DDH_SIMD_BODY void run(float* dst, const Sources4& srcs, uint64_t numel) {
    const float *a = srcs[0], *b = srcs[1], *c = srcs[2], *d = srcs[3];
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i)
      dst[i] = sum_of<float, kSources, kBlock, kFromDst, kRound>(kFromDst ? dst[i] : 0, a, b, c, d, i);
  }
};

template <uint32_t kSources, uint32_t kBlock>
struct SumToAll {
  DDH_SIMD_BODY void run(const Dsts4& dsts, const Sources4& srcs, uint64_t numel) {
    const float *a = srcs[0], *b = srcs[1], *c = srcs[2], *d = srcs[3];
    float *p = dsts[0], *q = dsts[1], *r = dsts[2], *s = dsts[3];
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) {
      const float sum = sum_of<float, kSources, kBlock, false, false>(0, a, b, c, d, i);
      p[i] = sum;
      q[i] = sum;
      if constexpr (kSources > 2) r[i] = sum;
      if constexpr (kSources > 3) s[i] = sum;
    }
  }
};

// Calls body(n, block) with both as constants: 1 to 4 sources, `block` at most n.
template <class Body>
void with_constants(uint32_t n, uint32_t block, Body&& body) {
  const auto with_block = [&]<uint32_t kSources>() {
    [&]<uint32_t... k>(std::integer_sequence<uint32_t, k...>) {
      static_cast<void>(((block == k + 1 && (body.template operator()<kSources, k + 1>(), true)) || ...));
    }
    (std::make_integer_sequence<uint32_t, kSources>());
  };
  switch (n) {
    case 1:
      return with_block.template operator()<1>();
    case 2:
      return with_block.template operator()<2>();
    case 3:
      return with_block.template operator()<3>();
    default:
      return with_block.template operator()<4>();
  }
}

// One pass: dst = 1 to 4 sources in blocks, or the same fold added to dst.
void sum_once(float* dst, const Sources4& srcs, uint32_t n, uint32_t block, bool from_dst, bool round, uint64_t numel) {
  with_constants(n, std::min(block, n), [&]<uint32_t kSources, uint32_t kBlock>() {
    const auto run = [&]<bool kFromDst, bool kRound>() {
      Kernel<Sum<kSources, kBlock, kFromDst, kRound>>::run(dst, srcs, numel);
    };
    if (from_dst)
      round ? run.template operator()<true, true>() : run.template operator()<true, false>();
    else
      round ? run.template operator()<false, true>() : run.template operator()<false, false>();
  });
}

// Up to four sources from number `begin` on.
Sources4 four_from(const SumSources& sources, uint32_t begin, uint64_t offset) {
  Sources4 srcs{};
  for (uint32_t k = begin; k < std::min(sources.n_srcs, begin + 4); ++k) srcs[k - begin] = sources.srcs[k] + offset;
  return srcs;
}

// Folds sources [begin, end) into dst, or adds the fold to dst, in passes of whole blocks of at most four sources. dst
// is not a source.
void fold(float* dst, const SumSources& sources, uint32_t begin, uint32_t end, uint32_t block, bool from_dst,
          uint64_t offset, uint64_t numel) {
  const uint32_t per_pass = 4 / block * block;
  for (uint32_t k = begin; k < end; k += per_pass) {
    const uint32_t n = std::min(per_pass, end - k);
    sum_once(dst, four_from(sources, k, offset), n, block, from_dst || k > begin, sources.round_to_bf16, numel);
  }
}

// The whole sum of at most kChunkNumel elements. dst is not a source.
void fold_chunk(float* dst, const SumSources& sources, bool from_dst, uint64_t offset, uint64_t numel) {
  const uint32_t n = sources.n_srcs, block = sources.reduce_block;
  if (block <= 4) return fold(dst, sources, 0, n, block, from_dst, offset, numel);
  alignas(64) std::array<float, kChunkNumel> part;
  for (uint32_t begin = 0; begin < n;) {
    const uint32_t end = begin + std::min(block, n - begin);
    const bool straight = begin == 0 && !from_dst;
    fold(straight ? dst : part.data(), sources, begin, end, 1, false, offset, numel);
    if (!straight) add(dst, part.data(), numel);
    begin = end;
  }
}

void check(const SumSources& sources) {
  if (sources.n_srcs == 0) ddh::fail(DDH_INVALID_ARGUMENT, "a sum over ranks has no source; pass at least one");
  if (sources.reduce_block == 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "blocks of a sum over ranks have no source; set reduce_block to 1 or more");
}

}  // namespace

void cast(void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype, uint64_t numel) {
  ddh::flat::cast(dst, dst_dtype, src, src_dtype, numel);
}

void add(float* dst, const float* src, uint64_t numel) { ddh::flat::add(dst, src, numel); }

bool any_nonfinite(const float* src, uint64_t numel) { return ddh::flat::any_nonfinite(src, numel); }

void copy(float* dst, const float* src, uint64_t numel) {
  Kernel<Sum<1, 1, false, false>>::run(dst, Sources4{src}, numel);
}

void round_to_bf16(float* values, uint64_t numel) {
  Kernel<Sum<1, 1, false, true>>::run(values, Sources4{values}, numel);
}

void ordered_sum(float* dst, const SumSources& sources, uint64_t offset, uint64_t numel, bool accumulate) {
  check(sources);
  if (sources.n_srcs <= 4) {
    return sum_once(dst, four_from(sources, 0, offset), sources.n_srcs, sources.reduce_block, accumulate,
                    sources.round_to_bf16, numel);
  }
  if (accumulate) {  // then dst is not a source
    return for_each_chunk(
        numel, [&](uint64_t begin, uint64_t n) { fold_chunk(dst + begin, sources, true, offset + begin, n); });
  }
  alignas(64) std::array<float, kChunkNumel> sum;
  for_each_chunk(numel, [&](uint64_t begin, uint64_t n) {
    fold_chunk(sum.data(), sources, false, offset + begin, n);
    copy(dst + begin, sum.data(), n);
  });
}

void ordered_sum_to_all(float* const* dsts, uint32_t n_dsts, const SumSources& sources, uint64_t offset,
                        uint64_t numel) {
  check(sources);
  if (n_dsts == sources.n_srcs && n_dsts >= 2 && n_dsts <= 4 && !sources.round_to_bf16) {
    Dsts4 at{};
    for (uint32_t k = 0; k < n_dsts; ++k) at[k] = dsts[k] + offset;
    const Sources4 srcs = four_from(sources, 0, offset);
    return with_constants(n_dsts, std::min(sources.reduce_block, n_dsts), [&]<uint32_t kSources, uint32_t kBlock>() {
      if constexpr (kSources > 1) Kernel<SumToAll<kSources, kBlock>>::run(at, srcs, numel);
    });
  }
  alignas(64) std::array<float, kChunkNumel> sum;
  for_each_chunk(numel, [&](uint64_t begin, uint64_t n) {
    ordered_sum(sum.data(), sources, offset + begin, n, false);
    for (uint32_t k = 0; k < n_dsts; ++k) copy(dsts[k] + offset + begin, sum.data(), n);
  });
}

#ifdef __SSE2__
namespace {

constexpr uint64_t kLanes = 4;  // 16 bytes at once fill a line as well as wider stores do

bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % (kLanes * sizeof(float)) == 0; }

void stream(float* dst, const float* src, uint64_t numel) {
  const uint64_t whole = numel / kLanes * kLanes;
  for (uint64_t i = 0; i < whole; i += kLanes) _mm_stream_ps(dst + i, _mm_loadu_ps(src + i));
  std::copy(src + whole, src + numel, dst + whole);
}

// Each value is streamed as soon as it is summed: the processor then reads the next ones meanwhile, which it does not while it
// streams a chunk.
template <uint32_t kSources, uint32_t kBlock>
void sum_and_stream(float* dst, float* sum, const Sources4& srcs, uint64_t numel) {
  const float *a = srcs[0], *b = srcs[1], *c = srcs[2], *d = srcs[3];
  const uint64_t whole = numel / kLanes * kLanes;
  for (uint64_t i = 0; i < whole; i += kLanes) {
    const __m128 four = sum_of<__m128, kSources, kBlock, false, false>(_mm_setzero_ps(), a, b, c, d, i);
    _mm_store_ps(sum + i, four);
    _mm_stream_ps(dst + i, four);
  }
  for (uint64_t i = whole; i < numel; ++i)
    dst[i] = sum[i] = sum_of<float, kSources, kBlock, false, false>(0, a, b, c, d, i);
}

}  // namespace

void ordered_sum_streamed(float* dst, float* sum, const SumSources& sources, uint64_t offset, uint64_t numel) {
  if (sources.n_srcs > 4 || sources.round_to_bf16 || !is_aligned(dst) || !is_aligned(sum)) {
    ordered_sum(sum, sources, offset, numel, false);
    return is_aligned(dst) ? stream(dst, sum, numel) : copy(dst, sum, numel);
  }
  check(sources);
  const Sources4 srcs = four_from(sources, 0, offset);
  with_constants(
      sources.n_srcs, std::min(sources.reduce_block, sources.n_srcs),
      [&]<uint32_t kSources, uint32_t kBlock>() { sum_and_stream<kSources, kBlock>(dst, sum, srcs, numel); });
}
// Such stores are not ordered by a release.
void end_streams() { _mm_sfence(); }
#else
void ordered_sum_streamed(float* dst, float* sum, const SumSources& sources, uint64_t offset, uint64_t numel) {
  ordered_sum(sum, sources, offset, numel, false);
  copy(dst, sum, numel);
}
void end_streams() {}
#endif

}  // namespace ddhost::kernels
