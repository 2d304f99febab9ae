// SPDX-License-Identifier: Apache-2.0
//
// ops/autograd_layers.hpp: layers for models on LibTorch's autograd. Batch norm and dropout, which need the run, are
// ddh::TorchModel's.
#pragma once

#include <ATen/core/Tensor.h>

namespace ops::autograd {

// y (..., out) = x (..., in) w^T + b in the weight's dtype; an undefined bias: none.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// The same along all sides.
struct ConvolutionOptions {
  int64_t stride = 1, padding = 0, groups = 1;
};
// x (B, channels, height, width) or (B, channels, frames, height, width), as the weight (out, channels / groups, ...); an
// undefined bias: none.
at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const ConvolutionOptions& o = {});

// Over the last dimension; fp32 -> fp32.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

// softmax(q k^T / sqrt(D)) v with q, k, v (B, H, T, D) -> (B, T, H D)
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal);

}  // namespace ops::autograd
