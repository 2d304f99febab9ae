// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/grads/block_batches.hpp: the gradients of a flat space that come in blocks, divided into batches. The blocks of a
// batch follow one another in one buffer, and one reduction sums them. A batch has blocks of every rank's segment, so that all
// ranks sum at once.
//
// A rank's part of a batch is one range of its segment. A block may lie in the segments of two neighbouring ranks. Then it
// ends the range of the first rank and begins that of the second, in one batch. The first such block is in the last batch, the
// next one in the first batch, and so on. Each rank's own blocks fill the batches between these two.
#pragma once

#include <vector>

#include "ddh/sdk/params/layout.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

struct BlockBatch {
  struct Block {
    int32_t param;
    uint64_t offset, numel;  // in the parameter
    uint64_t at, padded;     // in the buffer: begin, and elements with the padding of the parameter
  };
  std::vector<Block> blocks;            // none in the rest of a space
  uint64_t numel = 0;                   // of the buffer
  std::vector<uint64_t> segment_numel;  // of the buffer, per rank
  uint64_t segment_offset = 0;          // of this rank's range in its segment
  std::vector<ddh_range> ranges;        // the parameters in it, flat_offset from its start
};

// The batches of a space for a rank; the same number, sizes and order on all ranks. None has more than `most_numel` elements,
// or the largest block if that has more. If that is too few for a block of each rank, the blocks come in the order of the
// space.
[[nodiscard]] std::vector<BlockBatch> block_batches(const ddh_model_desc& model, const FlatSpace& space, int32_t rank,
                                                    uint64_t most_numel);

// What is after FlatSpace::blocks_numel, as one batch. Its numel is 0 if there is nothing.
[[nodiscard]] BlockBatch rest_of(const FlatSpace& space, int32_t rank);

// Elements of the largest block of a space.
[[nodiscard]] uint64_t largest_block(const ddh_model_desc& model, const FlatSpace& space);

// What FullGrads takes on all ranks for `all` bytes of gradients.
[[nodiscard]] uint64_t full_grad_bytes(uint64_t all, const ddh_attach_args& args);
// What the buffers of gradients in flight may take on a rank. `option`: as the user gave it; 0: by default 64 MiB, or what
// FullGrads takes less a segment, if that is less.
[[nodiscard]] uint64_t grad_buffer_limit(uint64_t all, const ddh_attach_args& args, uint64_t option);

// For GradRing: `grouping` with gradients in blocks, in the units whose gradients are larger than `option`; by default, than a
// quarter of grad_buffer_limit. With accumulation in DDH_MICRO_FIRST order gradients are whole, because the sum of the
// micro-batches is; on one rank too, because its segment is.
[[nodiscard]] Grouping with_blocks(Grouping grouping, const ddh_attach_args& args, uint64_t option);

}  // namespace DDH_HIDDEN
}  // namespace ddh
