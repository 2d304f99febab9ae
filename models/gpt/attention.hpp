// SPDX-License-Identifier: Apache-2.0
//
// gpt/attention.hpp: causal attention and the activation of a block, on operators of ATen that are called for pieces of
// fixed size, so the result does not depend on the number of threads.
#pragma once

#include "layers.hpp"

namespace gpt {

// qkv (B, T, 3, H, D) fp32 -> (B T, C) fp32. Stores in `saved` what the backward needs besides qkv and the result.
at::Tensor attention(const UnitContext& u, const at::Tensor& qkv, BlockSaved& saved);
// Gradient of qkv (B, T, 3, H, D). `attended`, d_out: (B T, C) fp32.
at::Tensor attention_backward(const UnitContext& u, const at::Tensor& qkv, const at::Tensor& attended,
                              const at::Tensor& d_out, const BlockSaved& saved);

// Element-wise, in the dtype of x.
at::Tensor activation(const UnitContext& u, const at::Tensor& x);
at::Tensor activation_backward(const UnitContext& u, const at::Tensor& dy, const at::Tensor& x);

}  // namespace gpt
