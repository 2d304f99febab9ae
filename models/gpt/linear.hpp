// SPDX-License-Identifier: Apache-2.0
//
// gpt/linear.hpp: linear layers and layer norms of a unit. Layer k of a view is one weight, or weight and bias.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "../ops/linear.hpp"
#include "layers.hpp"

namespace gpt {

inline constexpr double kLayerNormEps = 1e-5;

using ops::widened;

// To what products take: the compute dtype.
inline at::Tensor narrowed(const UnitContext& u, const at::Tensor& x) { return x.to(u.config.compute); }

inline ops::Affine layer_of(const UnitContext& u, uint32_t layer) {
  if (u.config.bias) return ops::affine(u.view, 2 * layer);
  return {ops::param(u.view, layer), nullptr};
}

// As the functions of ops/linear.hpp.
inline at::Tensor linear(const UnitContext& u, uint32_t layer, const at::Tensor& x, int64_t out, at::ScalarType type) {
  return ops::linear(u.products, layer_of(u, layer), x, out, type);
}
inline at::Tensor linear_backward(const UnitContext& u, uint32_t layer, const at::Tensor& dy, const at::Tensor& x,
                                  at::ScalarType type) {
  return ops::linear_backward(u.products, layer_of(u, layer), dy, x, type);
}
inline std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm(const UnitContext& u, uint32_t layer,
                                                                 const at::Tensor& x) {
  return ops::layer_norm(layer_of(u, layer), x, kLayerNormEps, u.config.compute);
}
inline at::Tensor layer_norm_backward(const UnitContext& u, uint32_t layer, const at::Tensor& dy, const at::Tensor& x,
                                      const at::Tensor& mean, const at::Tensor& rstd,
                                      const at::Tensor& past_norm = {}) {
  return ops::layer_norm_backward(layer_of(u, layer), dy, x, mean, rstd, past_norm);
}

}  // namespace gpt
