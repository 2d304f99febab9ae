// SPDX-License-Identifier: Apache-2.0
//
// What the parts share: linear layers, norms, attention.
#include "unit.hpp"

#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <cmath>

#include "ddh/sdk/torch/device.hpp"

namespace cad {

at::Tensor widened(const at::Tensor& x) { return x.to(at::kFloat); }

at::Tensor linear(const Call& w, const std::string& layer, const at::Tensor& x) {
  const at::Tensor& weight = w[layer + ".weight"];
  const at::Tensor narrow = x.to(weight.scalar_type());
  return w.has(layer + ".bias") ? at::linear(narrow, weight, w[layer + ".bias"]) : at::linear(narrow, weight);
}

at::Tensor layer_norm(const Call& w, const std::string& layer, const at::Tensor& x, double eps) {
  return at::layer_norm(x, {x.size(-1)}, widened(w[layer + ".weight"]), widened(w[layer + ".bias"]), eps);
}

at::Tensor rms_norm(const Call& w, const std::string& layer, const at::Tensor& x, double eps) {
  return x.mul(x.square().mean(-1, /*keepdim=*/true).add(eps).rsqrt()).mul(widened(w[layer + ".weight"]));
}

at::Tensor heads(const at::Tensor& x, int64_t n) {
  return widened(x).view({x.size(0), x.size(1), n, x.size(2) / n}).transpose(1, 2);
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  // LibTorch's fused attentions for GPUs have no deterministic backward in fp32.
  const at::Tensor y = ddh::by_operators(q)
                           ? std::get<0>(at::_scaled_dot_product_attention_math(q, k, v, {}, 0.0, causal))
                           : at::scaled_dot_product_attention(q, k, v, {}, 0.0, causal);
  return y.transpose(1, 2).flatten(2);
}

void add_linear(std::vector<ParamSpec>& params, const std::string& layer, int64_t in, int64_t out, ddh::ParamInit init,
                bool bias) {
  params.push_back({layer + ".weight", {out, in}, init});
  if (bias) params.push_back({layer + ".bias", {out}, kZero});
}

void add_norm(std::vector<ParamSpec>& params, const std::string& layer, int64_t width, bool bias) {
  params.push_back({layer + ".weight", {width}, kOne});
  if (bias) params.push_back({layer + ".bias", {width}, kZero});
}

ddh::ParamInit start_of(const Config& config, int64_t fan_in, ddh::ParamInit published) {
  return config.start == Start::kFanIn ? normal(1 / std::sqrt(static_cast<double>(fan_in))) : published;
}

}  // namespace cad
