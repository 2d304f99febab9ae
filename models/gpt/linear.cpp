// SPDX-License-Identifier: Apache-2.0
#include "linear.hpp"
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include "../ops/column_sums.hpp"
#include "view.hpp"

namespace gpt {
namespace {

const ddh_param_view& weight_of(const UnitContext& u, uint32_t layer) {
  return param(u.view, u.config.bias ? 2 * layer : layer);
}
const ddh_param_view& bias_of(const UnitContext& u, uint32_t layer) { return param(u.view, 2 * layer + 1); }

}  // namespace

at::Tensor linear(const UnitContext& u, uint32_t layer, const at::Tensor& x, int64_t out, at::ScalarType type) {
  at::Tensor y = at::empty({x.size(0), out}, type);
  u.products.forward({x.size(0), x.size(1), out}, x.const_data_ptr(), weight_of(u, layer).data,
                     u.config.bias ? bias_of(u, layer).data : nullptr, ops::result(y));
  return y;
}

at::Tensor linear_backward(const UnitContext& u, uint32_t layer, const at::Tensor& dy, const at::Tensor& x,
                           at::ScalarType type) {
  const ddh_param_view& w = weight_of(u, layer);
  const ops::LinearShape shape{x.size(0), x.size(1), dy.size(1)};
  if (w.grad != nullptr) u.products.backward_weight(shape, dy.const_data_ptr(), x.const_data_ptr(), grad(w), adds(w));
  if (u.config.bias && bias_of(u, layer).grad != nullptr) {
    const at::Tensor wide_dy = widened(dy);
    at::Tensor d_bias = at::empty({dy.size(1)}, at::kFloat);
    ops::column_sums(wide_dy.const_data_ptr<float>(), dy.size(0), dy.size(1), d_bias.mutable_data_ptr<float>());
    give(bias_of(u, layer), d_bias);
  }
  at::Tensor dx = at::empty(x.sizes(), type);
  u.products.backward_input(shape, dy.const_data_ptr(), w.data, ops::result(dx));
  return dx;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm(const UnitContext& u, uint32_t layer, const at::Tensor& x) {
  std::optional<at::Tensor> bias;
  if (u.config.bias) bias = vector(bias_of(u, layer));
  auto [y, mean, rstd] = at::native_layer_norm(x, {u.config.width}, vector(weight_of(u, layer)), bias, kLayerNormEps);
  return {narrowed(u, y), mean, rstd};
}

at::Tensor layer_norm_backward(const UnitContext& u, uint32_t layer, const at::Tensor& dy, const at::Tensor& x,
                               const at::Tensor& mean, const at::Tensor& rstd) {
  std::optional<at::Tensor> bias;
  if (u.config.bias) bias = vector(bias_of(u, layer));
  // Computes only dx: ATen would split the sums over rows by the number of threads.
  const auto [dx, no_weight, no_bias] = at::native_layer_norm_backward(
      dy, x, {u.config.width}, mean, rstd, vector(weight_of(u, layer)), bias, {true, false, false});
  if (weight_of(u, layer).grad == nullptr && !(u.config.bias && bias_of(u, layer).grad != nullptr)) return dx;
  at::Tensor d_weight = at::empty({u.config.width}, at::kFloat), d_bias;
  if (u.config.bias) d_bias = at::empty_like(d_weight);
  ops::layer_norm_weight_backward({dy.const_data_ptr<float>(), x.const_data_ptr<float>(), mean.const_data_ptr<float>(),
                                   rstd.const_data_ptr<float>(), x.size(0), u.config.width},
                                  d_weight.mutable_data_ptr<float>(),
                                  u.config.bias ? d_bias.mutable_data_ptr<float>() : nullptr);
  give(weight_of(u, layer), d_weight);
  if (u.config.bias) give(bias_of(u, layer), d_bias);
  return dx;
}

}  // namespace gpt
