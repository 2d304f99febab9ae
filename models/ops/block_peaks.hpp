// SPDX-License-Identifier: Apache-2.0
//
// ops/block_peaks.hpp: what a transformer block that writes its gradients itself (gpt, vit) allocates beside what it keeps.
#pragma once

#include "attention.hpp"
#include "ddh/kind/model.h"

namespace ops {

struct BlockSizes {
  AttentionShape attention;  // its width is the block's
  int64_t mlp_width;
  int64_t narrow_bytes;  // of an element of the compute dtype
  int32_t dtype;         // compute dtype; -1: the device's operators multiply, so a sum has no parts (products.hpp)
  AttentionWay way;
  bool drops;         // dropout of the branches' results, so their gradients are copies
  bool drops_hidden;  // dropout of the activation's result
  int64_t n_qkv;      // layers of query, key and value: 1 or 3
};
// Fills the three figures of `out` beside what is kept.
void add_block_peaks(const BlockSizes& s, ddh_estimate& out);

}  // namespace ops
