// SPDX-License-Identifier: Apache-2.0
//
// ops/batch_norm.hpp: batch norm by the statistics of a micro-batch and the activation after it, for images in host memory
// in fp32 or bf16, with autograd. The values between norm and activation are not kept: the backward computes them again from
// the input.
#pragma once

#include <ATen/core/Tensor.h>

#include "norm_kernels.hpp"

namespace ops {

struct DDH_HIDDEN NormedBatch {
  at::Tensor y;               // as x, with its channels side by side
  at::Tensor mean, variance;  // (C) fp32; the variance is divided by count - 1, as running statistics are
};

// x (N, C, H, W) or (N, C), which takes_own_kernels (ops/rows.hpp); weight and bias (C) fp32.
NormedBatch batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                       Activation activation);

// By given statistics (C) fp32, without a gradient.
at::Tensor normalized(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& variance, const at::Tensor& weight,
                      const at::Tensor& bias, double eps, Activation activation);

}  // namespace ops
