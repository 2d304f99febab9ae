// SPDX-License-Identifier: Apache-2.0
//
// What the parts share: layers by the names of their weights.
#include "unit.hpp"

#include "../ops/language_layers.hpp"

#include <cmath>

namespace cad {

at::Tensor widened(const at::Tensor& x) { return x.to(at::kFloat); }

at::Tensor linear(Call& w, const std::string& layer, const at::Tensor& x) { return w.linear(layer, x); }

at::Tensor layer_norm(const Call& w, const std::string& layer, const at::Tensor& x, double eps) {
  return ops::autograd::layer_norm(x, w[layer + ".weight"], w[layer + ".bias"], eps);
}

at::Tensor rms_norm(const Call& w, const std::string& layer, const at::Tensor& x, double eps) {
  return ops::autograd::rms_norm(x, w[layer + ".weight"], eps);
}

at::Tensor by_heads(const at::Tensor& x, int64_t n) {
  return widened(x).view({x.size(0), x.size(1), n, x.size(2) / n});
}

at::Tensor heads(const at::Tensor& x, int64_t n) { return by_heads(x, n).transpose(1, 2); }

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
