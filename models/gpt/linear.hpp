// SPDX-License-Identifier: Apache-2.0
//
// gpt/linear.hpp: linear layers and layer norms of a unit. Layer k of a view is one weight, or weight and bias.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "layers.hpp"

namespace gpt {

inline constexpr double kLayerNormEps = 1e-5;

// Converts to the dtype of products' operands, the compute dtype. In fp32 it returns the same tensor.
inline at::Tensor narrowed(const UnitContext& u, const at::Tensor& x) { return x.to(u.config.compute); }
inline at::Tensor widened(const at::Tensor& x) { return x.to(at::kFloat); }

// y (rows, out) = x (rows, in) w^T + b, in `type`: the compute dtype, or fp32 if no product follows.
at::Tensor linear(const UnitContext& u, uint32_t layer, const at::Tensor& x, int64_t out, at::ScalarType type);
// Writes gradients of weight and bias to the view. Returns the gradient of x (rows, in), in `type` as above.
at::Tensor linear_backward(const UnitContext& u, uint32_t layer, const at::Tensor& dy, const at::Tensor& x,
                           at::ScalarType type);

// y in the compute dtype from x in fp32; mean, 1 / deviation
std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm(const UnitContext& u, uint32_t layer, const at::Tensor& x);
// All fp32.
at::Tensor layer_norm_backward(const UnitContext& u, uint32_t layer, const at::Tensor& dy, const at::Tensor& x,
                               const at::Tensor& mean, const at::Tensor& rstd);

}  // namespace gpt
