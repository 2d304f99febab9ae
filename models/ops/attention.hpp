// SPDX-License-Identifier: Apache-2.0
//
// ops/attention.hpp: attention of a sequence to itself, computed in pieces of fixed size: so no bit depends on the number of
// threads.
#pragma once

#include <ATen/core/Tensor.h>

#include "ddh/sdk/torch/device.hpp"
#include "dropout.hpp"

namespace ops {

struct AttentionShape {
  int64_t B, T, H, D;  // samples, tokens, heads, width of a head
  bool causal;         // a token attends to itself and those before it; else to all
  [[nodiscard]] int64_t width() const { return H * D; }
};

// How attention is computed.
enum class AttentionWay {
  kFused,     // on processors without dropout: kernels whose probabilities are computed again in the backward
  kFlash,     // that for GPUs: in 16 bits, without dropout, heads of at most 192 elements, a multiple of 8
  kTiled,     // on processors with dropout: tiles whose probabilities are computed again in the backward
  kExplicit,  // by operators: a product, a mask and a softmax; the probabilities are kept
};
AttentionWay attention_way(const AttentionShape& shape, bool drops, at::ScalarType type, bool is_cuda,
                           bool by_operators);
AttentionWay attention_way(const AttentionShape& shape, bool drops, at::ScalarType type,
                           const ddh::TorchDevice& device);

// What the backward needs besides qkv and the result; nothing in tiles.
struct AttentionSaved {
  at::Tensor log_sum_exp;                // (B, H, T), fused and flash
  at::Tensor random_state, random_rest;  // flash: of LibTorch's own dropout, which is not used
  at::Tensor probabilities;              // (B, H, T, T), explicit
};

// qkv (B, T, 3, H, D) in the compute dtype -> (B T, H D), fp32 or the same dtype
at::Tensor attention(const AttentionShape& shape, const DropoutPlace& place, const at::Tensor& qkv,
                     AttentionSaved& saved);
// Gradient of qkv (B, T, 3, H, D), fp32 or the dtype of qkv. `attended`, d_out: (B T, H D), attended as it was returned, or
// rounded to the dtype of qkv.
at::Tensor attention_backward(const AttentionShape& shape, const DropoutPlace& place, const at::Tensor& qkv,
                              const at::Tensor& attended, const at::Tensor& d_out, const AttentionSaved& saved);

// FLOPs of the products of all samples, and fp32 elements that are kept from forward to backward.
struct AttentionCost {
  double forward_flops, backward_flops, kept_numel;
};
// All T T pairs of a query and a key count, with a causal mask too, as in torch's
// FlopCounterMode; kernels pass over blocks that the mask hides.
AttentionCost attention_cost(const AttentionShape& shape, AttentionWay way);

}  // namespace ops
