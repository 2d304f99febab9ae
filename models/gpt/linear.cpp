// SPDX-License-Identifier: Apache-2.0
#include "linear.hpp"
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include "view.hpp"

namespace gpt {
namespace {

const ddh_param_view& weight_of(const UnitContext& u, uint32_t layer) {
  return param(u.view, u.config.bias ? 2 * layer : layer);
}
const ddh_param_view& bias_of(const UnitContext& u, uint32_t layer) { return param(u.view, 2 * layer + 1); }

}  // namespace

at::Tensor linear(const UnitContext& u, uint32_t layer, const at::Tensor& x, int64_t out) {
  at::Tensor y = at::empty({x.size(0), out}, at::kFloat);
  u.products.forward({x.size(0), x.size(1), out}, x.const_data_ptr<float>(), data(weight_of(u, layer)),
                     u.config.bias ? data(bias_of(u, layer)) : nullptr, y.mutable_data_ptr<float>());
  return y;
}

at::Tensor linear_backward(const UnitContext& u, uint32_t layer, const at::Tensor& dy, const at::Tensor& x) {
  const ddh_param_view& w = weight_of(u, layer);
  const ops::LinearShape shape{x.size(0), x.size(1), dy.size(1)};
  const auto* from = dy.const_data_ptr<float>();
  if (w.grad != nullptr) u.products.backward_weight(shape, from, x.const_data_ptr<float>(), grad(w), adds(w));
  if (u.config.bias && bias_of(u, layer).grad != nullptr) give(bias_of(u, layer), dy.sum(0));
  at::Tensor dx = at::empty_like(x);
  u.products.backward_input(shape, from, data(w), dx.mutable_data_ptr<float>());
  return dx;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm(const UnitContext& u, uint32_t layer, const at::Tensor& x) {
  std::optional<at::Tensor> bias;
  if (u.config.bias) bias = vector(bias_of(u, layer));
  return at::native_layer_norm(x, {u.config.width}, vector(weight_of(u, layer)), bias, kLayerNormEps);
}

at::Tensor layer_norm_backward(const UnitContext& u, uint32_t layer, const at::Tensor& dy, const at::Tensor& x,
                               const at::Tensor& mean, const at::Tensor& rstd) {
  std::optional<at::Tensor> bias;
  if (u.config.bias) bias = vector(bias_of(u, layer));
  const auto [dx, d_weight, d_bias] = at::native_layer_norm_backward(
      dy, x, {u.config.width}, mean, rstd, vector(weight_of(u, layer)), bias, {true, true, u.config.bias});
  give(weight_of(u, layer), d_weight);
  if (u.config.bias) give(bias_of(u, layer), d_bias);
  return dx;
}

}  // namespace gpt
