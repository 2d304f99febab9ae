// SPDX-License-Identifier: Apache-2.0
#include "linear.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include "column_sums.hpp"

namespace ops {

at::Tensor linear(Products& products, const Affine& layer, const at::Tensor& x, int64_t out, at::ScalarType type) {
  at::Tensor y = at::empty({x.size(0), out}, type);
  products.forward({x.size(0), x.size(1), out}, x.const_data_ptr(), layer.weight.data,
                   layer.bias != nullptr ? layer.bias->data : nullptr, result(y));
  return y;
}

at::Tensor linear_backward(Products& products, const Affine& layer, const at::Tensor& dy, const at::Tensor& x,
                           at::ScalarType type) {
  const ddh_param_view& w = layer.weight;
  const LinearShape shape{x.size(0), x.size(1), dy.size(1)};
  if (w.grad != nullptr) products.backward_weight(shape, dy.const_data_ptr(), x.const_data_ptr(), grad(w), adds(w));
  give_bias_gradient(layer.bias, dy);
  at::Tensor dx = at::empty(x.sizes(), type);
  products.backward_input(shape, dy.const_data_ptr(), w.data, result(dx));
  return dx;
}

void give_bias_gradient(const ddh_param_view* bias, const at::Tensor& dy) {
  if (bias == nullptr || bias->grad == nullptr) return;
  const at::Tensor wide_dy = widened(dy);
  at::Tensor d_bias = at::empty({dy.size(1)}, at::kFloat);
  column_sums(wide_dy.const_data_ptr<float>(), dy.size(0), dy.size(1), d_bias.mutable_data_ptr<float>());
  give(*bias, d_bias);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm(const Affine& layer, const at::Tensor& x, double eps,
                                                          at::ScalarType type) {
  std::optional<at::Tensor> bias;
  if (layer.bias != nullptr) bias = vector(*layer.bias);
  auto [y, mean, rstd] = at::native_layer_norm(x, {x.size(1)}, vector(layer.weight), bias, eps);
  return {y.to(type), mean, rstd};
}

at::Tensor layer_norm_backward(const Affine& layer, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                               const at::Tensor& rstd) {
  const int64_t C = x.size(1);
  const bool has_bias = layer.bias != nullptr;
  std::optional<at::Tensor> bias;
  if (has_bias) bias = vector(*layer.bias);
  // Only the part of the rows: ATen would divide the sums over rows by the number of threads.
  const auto [dx, no_weight, no_bias] =
      at::native_layer_norm_backward(dy, x, {C}, mean, rstd, vector(layer.weight), bias, {true, false, false});
  if (layer.weight.grad == nullptr && !(has_bias && layer.bias->grad != nullptr)) return dx;
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
