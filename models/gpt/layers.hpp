// SPDX-License-Identifier: Apache-2.0
//
// gpt/layers.hpp: forward and backward of the units of a GPT, written out by hand over ATen and ops::Products.
// Gradients of weights are written directly into the strategy's buffers; autograd records nothing.
//
// In bf16 and fp16 the residual stream and its gradient stay fp32, as do layer norms, attention, softmax and loss.
// Weights and the operands of products have 16 bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "../ops/attention.hpp"
#include "../ops/products.hpp"
#include "config.hpp"
#include "ddh/sdk/kernels/dropout.hpp"
#include "ddh/sdk/later_gradients.hpp"
#include "ddh/sdk/model.hpp"

namespace gpt {

inline constexpr int64_t kIgnoredTarget = -100;     // does not count
inline constexpr int64_t kLogitsOfChunk = 1 << 16;  // that a thread takes at a time: a part of the second-level cache

// The state of a micro-batch.
struct GptBatch {
  at::Tensor ids;      // (B, T) int64
  at::Tensor targets;  // (B, T) int64
  int64_t counted_targets = 0;
  int64_t B = 0, T = 0;
  [[nodiscard]] int64_t bytes() const { return 2 * B * T * static_cast<int64_t>(sizeof(int64_t)); }
};

struct DDH_HIDDEN UnitContext {
  const Config& config;
  ops::Products& products;
  const GptBatch batch;  // its tensors are on the device
  const ddh_unit_view& view;
  ddh::DropoutKey dropout;
  bool training;               // dropout is active
  ddh::LaterGradients& later;  // of this unit's backward
};

// Activations that a block keeps for its backward; N = B T.
struct BlockSaved {
  at::Tensor x, mean_1, rstd_1, y_1;  // input (N, C); statistics (N, 1); normed input (N, C)
  at::Tensor qkv;                     // (B, T, 3, H, D)
  at::Tensor attended;                // (N, C)
  ops::AttentionSaved attention;
  at::Tensor x_mid, mean_2, rstd_2, y_2;
  at::Tensor fc, act;  // (N, 4 C)
};

struct HeadSaved {
  at::Tensor x, mean, rstd, y;
  at::Tensor logits, log_sum_exp;  // (N, V), (N); by operators the logits become their log-softmax
};

at::Tensor token_embedding(const UnitContext& u);  // (N, C)
void token_embedding_backward(const UnitContext& u, const at::Tensor& dx);
at::Tensor position_embedding(const UnitContext& u, at::Tensor x);       // adds to x
void position_embedding_backward(const UnitContext& u, at::Tensor& dx);  // dx becomes the gradient of its input
at::Tensor block(const UnitContext& u, const at::Tensor& x, BlockSaved& saved);
at::Tensor block_backward(const UnitContext& u, at::Tensor dx, BlockSaved& saved);
// Returns the sum of the losses of the counted targets, fp64 on the device.
at::Tensor head(const UnitContext& u, const at::Tensor& x, HeadSaved& saved);
at::Tensor head_backward(const UnitContext& u, double seed_scale, HeadSaved& saved);

}  // namespace gpt
