// SPDX-License-Identifier: Apache-2.0
//
// vit/layers.hpp: forward and backward of the units of a Vision Transformer (Dosovitskiy et al. 2021), written out by hand
// over ATen and ops::Products. Gradients of weights go straight into the strategy's buffers.
//
// In bf16 and fp16 the residual stream and its gradient stay fp32, as do layer norms, attention, softmax and loss; weights,
// and whatever a product takes, are of 16 bits.
#pragma once

#include <ATen/core/Tensor.h>

#include "../images/loader.hpp"
#include "../ops/attention.hpp"
#include "../ops/linear.hpp"
#include "config.hpp"
#include "ddh/sdk/model.hpp"

namespace vit {

struct VitBatch {
  at::Tensor patches;  // (B N, channels P P) fp32
  at::Tensor targets;  // (B, K) fp32
  std::vector<int64_t> labels;
  at::Tensor labels_on_device;  // (B) int64, for operators
  int64_t B = 0;
  double weight = 0;  // of all targets
  [[nodiscard]] int64_t bytes() const { return static_cast<int64_t>(patches.nbytes() + targets.nbytes()); }
};

// (B, channels, side, side) -> (B N, channels P P): patches row by row, each as the patch convolution's weight has it.
at::Tensor patches_of(const at::Tensor& pixels, int64_t patch);
// Back: (N, channels P P) of one image -> (channels, side, side).
at::Tensor pixels_of(const at::Tensor& patches, int64_t patch);

struct DDH_HIDDEN UnitContext {
  const Config& config;
  ops::Products& products;
  const VitBatch batch;  // its tensors are on the device
  const ddh_unit_view& view;
  int64_t layer;         // of a block
  ddh::DropoutKey call;  // the call's place in the run
  bool training;         // dropout is active

  [[nodiscard]] ops::AttentionShape attention() const {
    return {batch.B, config.tokens(), config.n_head, config.width / config.n_head, /*causal=*/false};
  }
};

// The data that a block keeps for its backward; rows are the B T tokens.
struct BlockSaved {
  at::Tensor x, mean_1, rstd_1, y_1;  // input (B T, C); statistics (B T, 1); normed input (B T, C)
  at::Tensor qkv;                     // (B, T, 3, H, D)
  at::Tensor attended;                // (B T, C)
  ops::AttentionSaved attention;
  at::Tensor x_mid, mean_2, rstd_2, y_2;
  at::Tensor fc, act;  // (B T, mlp_width)
};

struct HeadSaved {
  at::Tensor x, mean, rstd, y;     // the class tokens (B, C)
  at::Tensor logits, log_sum_exp;  // (B, K), (B)
};

at::Tensor embedding(const UnitContext& u);  // (B T, C)
void embedding_backward(const UnitContext& u, at::Tensor dx);
at::Tensor block(const UnitContext& u, const at::Tensor& x, BlockSaved& saved);
at::Tensor block_backward(const UnitContext& u, at::Tensor dx, BlockSaved& saved);
// Returns the sum of the losses, fp64 on the device.
at::Tensor head(const UnitContext& u, const at::Tensor& x, HeadSaved& saved);
at::Tensor head_backward(const UnitContext& u, double seed_scale, const HeadSaved& saved);

// The places of a unit that have dropout.
enum class Site : uint64_t { kEmbedding, kAttention, kAttentionOut, kMlpHidden, kMlpOut, kAttentionPath, kMlpPath };

inline ops::DropoutPlace place(const UnitContext& u, Site site, double probability) {
  ddh::DropoutKey key = u.call;
  key.site = static_cast<uint64_t>(site);
  return {u.training ? probability : 0, key};
}
inline at::Tensor dropout(const UnitContext& u, Site site, at::Tensor x) {
  return ops::dropout(place(u, site, u.config.dropout), std::move(x));
}

// To what products take: the compute dtype.
inline at::Tensor narrowed(const UnitContext& u, const at::Tensor& x) { return x.to(u.config.compute); }

}  // namespace vit
