// SPDX-License-Identifier: Apache-2.0
//
// gpt/linear.hpp: linear layers and layer norms of a unit. Layer k of a view is one weight, or weight and bias.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "layers.hpp"

namespace gpt {

inline constexpr double kLayerNormEps = 1e-5;

// y (rows, out) = x (rows, in) w^T + b
at::Tensor linear(const UnitContext& u, uint32_t layer, const at::Tensor& x, int64_t out);
// Gradients of weight and bias into the view; returns the gradient of x (rows, in).
at::Tensor linear_backward(const UnitContext& u, uint32_t layer, const at::Tensor& dy, const at::Tensor& x);

// y, mean, 1 / deviation
std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm(const UnitContext& u, uint32_t layer, const at::Tensor& x);
at::Tensor layer_norm_backward(const UnitContext& u, uint32_t layer, const at::Tensor& dy, const at::Tensor& x,
                               const at::Tensor& mean, const at::Tensor& rstd);

}  // namespace gpt
