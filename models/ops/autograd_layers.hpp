// SPDX-License-Identifier: Apache-2.0
//
// ops/autograd_layers.hpp: layers for models on LibTorch's autograd. Batch norm and dropout, which need the run, are
// ddh::TorchModel's.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "products.hpp"

namespace ops::autograd {

// y (..., out) = x (..., in) w^T + b with the products of a library, which outlives the graph; all in one dtype. By LibTorch's
// operators alone it is at::linear.
at::Tensor linear(Products& products, const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias);

// The same along all sides.
struct ConvolutionOptions {
  int64_t stride = 1, padding = 0, groups = 1;
};
// x (B, channels, height, width) or (B, channels, frames, height, width), as the weight (out, channels / groups, ...); an
// undefined bias: none.
at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const ConvolutionOptions& o = {});

// Whether a convolution is a product of matrices whose rows are the pixels of x: 1 x 1 with stride 1 and neither padding nor
// groups, on images in NHWC that kernels of ops/ read.
bool is_pointwise(const at::Tensor& x, const at::Tensor& weight, const ConvolutionOptions& o);
// That product. oneDNN's convolution brings the weight into a layout of its own each time, which takes longer than the product
// where images are small.
at::Tensor pointwise(Products& products, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// Over the last dimension; fp32 -> fp32.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);

// softmax(q k^T / sqrt(D)) v with q, k, v (B, H, T, D) -> (B, T, H D)
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal);

}  // namespace ops::autograd
