// SPDX-License-Identifier: Apache-2.0
//
// ops/depthwise.hpp: depthwise convolutions with autograd, for images whose channels are side by side in host memory.
// oneDNN's take several times as long where images are small, and in bf16.
#pragma once

#include <ATen/core/Tensor.h>

namespace ops {

// Whether `depthwise` takes the layer: x (N, C, H, W), weight (C, 1, k, k) with k x k taps at most kMostTaps.
bool fits_depthwise(const at::Tensor& x, const at::Tensor& weight, int64_t groups);

at::Tensor depthwise(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding);

}  // namespace ops
