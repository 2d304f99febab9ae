// SPDX-License-Identifier: Apache-2.0
//
// ops/linear.hpp: linear layers and layer norms over the view of a unit, forward and backward. Gradients of weights and
// biases go straight into the strategy's buffers.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "products.hpp"
#include "view.hpp"

namespace ops {

// The parameters of a linear layer or a layer norm. A part of a view: valid as long as the view is.
struct Affine {
  const ddh_param_view& weight;
  const ddh_param_view* bias;  // nullptr: none
};

// Parameters `i` and i + 1 of the view.
inline Affine affine(const ddh_unit_view& view, uint32_t i) { return {param(view, i), &param(view, i + 1)}; }

inline at::Tensor widened(const at::Tensor& x) { return x.to(at::kFloat); }

// y (rows, out) = x (rows, in) w^T + b, in `type`: what products take, or fp32 if no product follows.
at::Tensor linear(Products& products, const Affine& layer, const at::Tensor& x, int64_t out, at::ScalarType type);
// Gradients of weight and bias into the view; returns the gradient of x (rows, in), in `type` as above.
at::Tensor linear_backward(Products& products, const Affine& layer, const at::Tensor& dy, const at::Tensor& x,
                           at::ScalarType type);
// The bias's gradient alone: the sum over the rows of dy (rows, out).
void give_bias_gradient(const ddh_param_view* bias, const at::Tensor& dy);

// Sums over the rows of x (rows, columns), fp32.
at::Tensor column_sums(const at::Tensor& x);

// y in `type` from x (rows, columns) in fp32; mean, 1 / deviation
std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm(const Affine& layer, const at::Tensor& x, double eps,
                                                          at::ScalarType type);
// The gradient of x (rows, columns), plus `past_norm` where it is defined: the gradient that reaches x through the residual
// connection. All fp32.
at::Tensor layer_norm_backward(const Affine& layer, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                               const at::Tensor& rstd, const at::Tensor& past_norm = {});

}  // namespace ops
