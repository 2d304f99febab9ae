// SPDX-License-Identifier: Apache-2.0
//
// ops/language_layers.hpp: layers of language models on LibTorch's autograd, fp32: root mean square norms (Zhang and Sennrich
// 2019) and rotary positions (Su et al. 2021). A processor computes each in one pass; elsewhere they are made of LibTorch's
// operators.
#pragma once

#include <ATen/core/Tensor.h>

namespace ops::autograd {

// Over the last dimension.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

// x (B, T, H, D) turned by cos and sin (T, D): the pair (j, j + D/2) by the angle of j. D is even.
at::Tensor rotated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace ops::autograd
