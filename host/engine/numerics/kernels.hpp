// SPDX-License-Identifier: Apache-2.0
//
// engine/numerics/kernels.hpp: the sums of the ranks' gradients, and other operations of the engine over flat ranges in
// host memory. Each gives the same bits at every vector width and for every division of a range. Arrays may be equal or
// disjoint, but must not overlap partly.
#pragma once

#include <cstdint>

#include "ddh/sdk/kernels/flat.hpp"

namespace ddhost::kernels {

using ddh::flat::for_each_chunk;
using ddh::flat::kChunkNumel;

// Operations of ddh/sdk/kernels/flat.hpp, compiled once with the flags of kernels.
void cast(void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype, uint64_t numel);
void add(float* dst, const float* src, uint64_t numel);
[[nodiscard]] bool any_nonfinite(const float* src, uint64_t numel);

void copy(float* dst, const float* src, uint64_t numel);  // dst[i] = src[i]
void round_to_bf16(float* values, uint64_t numel);        // to nearest even, in place

// The order of a sum: in order within blocks of `reduce_block` sources, then the blocks in order. A sum without an
// initial value begins with its first source, so that -0 stays -0.
struct SumSources {
  const float* const* srcs;
  uint32_t n_srcs;             // at least 1
  uint32_t reduce_block;       // at least 1
  bool round_to_bf16 = false;  // round the sources before they are added, but not the initial value
};

// dst[i] = sum over k of srcs[k][offset + i]; dst may be a source. `accumulate`: the sum starts from dst, ((dst + block
// 0) + block 1) + ..., and dst is not a source. One to four sources take one pass; more take several passes over chunks
// in L1.
void ordered_sum(float* dst, const SumSources& sources, uint64_t offset, uint64_t numel, bool accumulate);

// Elements of a sum that are read once more, for the norm, before the next are summed. With more of them the processor waits
// for memory after each norm, and the sources of a sum push the chunk out of L1: 4,096 take up to 1.5 times as long.
inline constexpr uint64_t kSumChunkNumel = 512;

// dsts[j][offset + i] = the same sum, for every j; each destination may be a source.
void ordered_sum_to_all(float* const* dsts, uint32_t n_dsts, const SumSources& sources, uint64_t offset,
                        uint64_t numel);

// dst[i] = sum[i] = the sum as of ordered_sum, not accumulated. dst is written past the caches: the processor then does not
// read it first, and keeps other data in the caches. For a large dst that is read much later; `sum` is a chunk in L1. Neither
// is a source. Other threads see dst after this thread calls end_streams.
void ordered_sum_streamed(float* dst, float* sum, const SumSources& sources, uint64_t offset, uint64_t numel);
void end_streams();

}  // namespace ddhost::kernels
