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

// Elements that the backward allocates for its threads, beside its arguments. They depend on the number of threads.
int64_t tiled_backward_numel(const AttentionShape& shape);

}  // namespace ops
