// SPDX-License-Identifier: Apache-2.0
#include "linear.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include "column_sums.hpp"
#include "ddh/sdk/torch/device.hpp"

namespace ops {

at::Tensor linear(Products& products, const Affine& layer, const at::Tensor& x, int64_t out, at::ScalarType type) {
  at::Tensor y = at::empty({x.size(0), out}, x.options().dtype(type));
  products.forward({x.size(0), x.size(1), out}, operand(x), layer.weight.data,
                   layer.bias != nullptr ? layer.bias->data : nullptr, result(y));
  return y;
}

at::Tensor linear_backward(Products& products, const Affine& layer, const at::Tensor& dy, const at::Tensor& x,
                           at::ScalarType type) {
  const ddh_param_view& w = layer.weight;
  const LinearShape shape{x.size(0), x.size(1), dy.size(1)};
  if (w.grad != nullptr) products.backward_weight(shape, operand(dy), operand(x), grad(w), adds(w));
  give_bias_gradient(layer.bias, dy);
  at::Tensor dx = at::empty(x.sizes(), x.options().dtype(type));
  products.backward_input(shape, operand(dy), w.data, result(dx));
  return dx;
}

void give_bias_gradient(const ddh_param_view* bias, const at::Tensor& dy) {
  if (bias == nullptr || bias->grad == nullptr) return;
  give(*bias, column_sums(ddh::by_operators(dy) ? dy : widened(dy)));
}

at::Tensor column_sums(const at::Tensor& x) {
  if (ddh::by_operators(x)) return x.sum(0, /*keepdim=*/false, at::kFloat);  // widened as it is read
  at::Tensor sums = at::empty({x.size(1)}, at::kFloat);
  column_sums(x.const_data_ptr<float>(), x.size(0), x.size(1), sums.mutable_data_ptr<float>());
  return sums;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm(const Affine& layer, const at::Tensor& x, double eps,
                                                          at::ScalarType type) {
  std::optional<at::Tensor> bias;
  if (layer.bias != nullptr) bias = vector(*layer.bias, x.device());
  auto [y, mean, rstd] = at::native_layer_norm(x, {x.size(1)}, vector(layer.weight, x.device()), bias, eps);
  return {y.to(type), mean, rstd};
}

at::Tensor layer_norm_backward(const Affine& layer, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                               const at::Tensor& rstd) {
  const int64_t C = x.size(1);
  const bool has_bias = layer.bias != nullptr;
  std::optional<at::Tensor> bias;
  if (has_bias) bias = vector(*layer.bias, x.device());
  const bool wants_gradients = layer.weight.grad != nullptr || (has_bias && layer.bias->grad != nullptr);
  const bool whole = wants_gradients && ddh::by_operators(x);
  // For processors only the part of the rows: ATen would divide the sums over rows by the number of threads.
  const auto [dx, whole_weight, whole_bias] = at::native_layer_norm_backward(
      dy, x, {C}, mean, rstd, vector(layer.weight, x.device()), bias, {true, whole, whole && has_bias});
  if (!wants_gradients) return dx;
  if (whole) {
    give(layer.weight, whole_weight);
    if (has_bias) give(*layer.bias, whole_bias);
    return dx;
  }
  at::Tensor d_weight = at::empty({C}, at::kFloat), d_bias;
  if (has_bias) d_bias = at::empty_like(d_weight);
  layer_norm_weight_backward({dy.const_data_ptr<float>(), x.const_data_ptr<float>(), mean.const_data_ptr<float>(),
                              rstd.const_data_ptr<float>(), x.size(0), C},
                             d_weight.mutable_data_ptr<float>(), has_bias ? d_bias.mutable_data_ptr<float>() : nullptr);
  give(layer.weight, d_weight);
  if (has_bias) give(*layer.bias, d_bias);
  return dx;
}

}  // namespace ops
