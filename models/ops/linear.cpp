// SPDX-License-Identifier: Apache-2.0
#include "linear.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include <algorithm>
#include <optional>

#include "column_sums.hpp"
#include "ddh/sdk/torch/pieces.hpp"
#include "layer_norm_kernels.hpp"
#include "rows.hpp"

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

namespace {

at::Tensor bias_of(const Affine& layer, at::Device device) {
  return layer.bias == nullptr ? at::Tensor() : vector(*layer.bias, device);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm(const Affine& layer, const at::Tensor& x, double eps,
                                                          at::ScalarType type) {
  const at::Tensor weight = vector(layer.weight, x.device()), bias = bias_of(layer, x.device());
  const int64_t N = x.size(0), C = x.size(1);
  if (ddh::by_operators(x)) {
    auto [y, mean, rstd] =
        at::native_layer_norm(x, {C}, weight, bias.defined() ? std::optional(bias) : std::nullopt, eps);
    return {y.to(type), mean, rstd};
  }
  const at::Tensor in = x.contiguous();
  at::Tensor y = at::empty({N, C}, x.options().dtype(type)), mean = at::empty({N, 1}, at::kFloat),
             rstd = at::empty({N, 1}, at::kFloat);
  const LayerNormParameters parameters{weight.const_data_ptr<float>(),
                                       bias.defined() ? bias.const_data_ptr<float>() : nullptr};
  with_any_elements(y, [&]<class Element>(const Element*) {
    for_row_chunks(N, C, [&](int64_t first, int64_t rows) {
      layer_norm_rows(in.const_data_ptr<float>() + first * C, parameters, rows, C, static_cast<float>(eps),
                      mutable_elements<Element>(y) + first * C, mean.mutable_data_ptr<float>() + first,
                      rstd.mutable_data_ptr<float>() + first);
    });
  });
  return {y, mean, rstd};
}

at::Tensor layer_norm_backward(const Affine& layer, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                               const at::Tensor& rstd, const at::Tensor& past_norm) {
  const int64_t N = x.size(0), C = x.size(1);
  const at::Tensor weight = vector(layer.weight, x.device());
  const bool has_bias = layer.bias != nullptr;
  const bool wants_gradients = layer.weight.grad != nullptr || (has_bias && layer.bias->grad != nullptr);
  if (ddh::by_operators(x)) {
    const at::Tensor bias = bias_of(layer, x.device());
    const auto [dx, d_weight, d_bias] =
        at::native_layer_norm_backward(dy, x, {C}, mean, rstd, weight, has_bias ? std::optional(bias) : std::nullopt,
                                       {true, wants_gradients, wants_gradients && has_bias});
    if (wants_gradients) give(layer.weight, d_weight);
    if (wants_gradients && has_bias) give(*layer.bias, d_bias);
    return past_norm.defined() ? dx.add_(past_norm) : dx;
  }
  const at::Tensor of_y = dy.contiguous(), of_x = x.contiguous(),
                   past = past_norm.defined() ? past_norm.contiguous() : past_norm;
  const LayerNormBackwardRows in{of_y.const_data_ptr<float>(),
                                 of_x.const_data_ptr<float>(),
                                 mean.const_data_ptr<float>(),
                                 rstd.const_data_ptr<float>(),
                                 N,
                                 C};
  if (wants_gradients) {
    at::Tensor d_weight = at::empty({C}, at::kFloat), d_bias;
    if (has_bias) d_bias = at::empty_like(d_weight);
    layer_norm_weight_backward(in, d_weight.mutable_data_ptr<float>(),
                               has_bias ? d_bias.mutable_data_ptr<float>() : nullptr);
    give(layer.weight, d_weight);
    if (has_bias) give(*layer.bias, d_bias);
  }
  at::Tensor dx = at::empty({N, C}, at::kFloat);
  for_row_chunks(N, C, [&](int64_t first, int64_t rows) {
    const int64_t at = first * C;
    layer_norm_rows_backward(
        {in.dy + at, in.x + at, in.mean + first, in.rstd + first, rows, C}, weight.const_data_ptr<float>(),
        past.defined() ? past.const_data_ptr<float>() + at : nullptr, dx.mutable_data_ptr<float>() + at);
  });
  return dx;
}

}  // namespace ops
