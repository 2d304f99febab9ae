// SPDX-License-Identifier: Apache-2.0
//
// ops/attention_tiles.hpp: exact attention with dropout on the probabilities, for processors. LibTorch's fused attention has
// none there. A tile is some rows (queries) of a few heads, with all keys that they see. So the memory grows linearly with
// the sequence, and a causal sequence needs little more than half of the products.
#pragma once

#include "attention.hpp"
#include "qkv.hpp"

namespace ops {

// out (B, H, T, D) = dropout(softmax(q k^T / sqrt(D))) v
void tiled_attention(const AttentionShape& shape, const DropoutPlace& place, const Qkv& all, const at::Tensor& out);
// Computes the probabilities again. d_out (B, H, T, D); writes all of d.
void tiled_attention_backward(const AttentionShape& shape, const DropoutPlace& place, const Qkv& all,
                              const at::Tensor& d_out, const Qkv& d);

// What one thread has at once, for estimates of memory.
struct TiledPart {
  int64_t n_parts;
  int64_t heads;       // of all its samples together
  int64_t tile_numel;  // scores of its largest tile
  bool copies;         // its heads are copies, not views
};
TiledPart tiled_part(const AttentionShape& shape);

}  // namespace ops
