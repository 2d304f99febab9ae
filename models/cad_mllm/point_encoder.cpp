// SPDX-License-Identifier: Apache-2.0
//
// Michelangelo's encoder of shapes (Zhao et al. 2023): learned queries attend to the points once, then to each other. The
// first query is the feature of the whole shape.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/pow.h>

#include <cmath>

#include "batch.hpp"
#include "unit.hpp"

namespace cad {
namespace {

const char* const kPrefix = "point_encoder.encoder.";

// (B, N, 6) -> (B, N, features): x y z, sines, cosines of each coordinate times 2^f, then the normal.
at::Tensor fourier_features(const PointShape& s, const at::Tensor& points) {
  const at::Tensor xyz = points.narrow(2, 0, 3), normals = points.narrow(2, 3, 3);
  const at::Tensor frequencies = at::pow(2.0, at::arange(s.frequencies, points.options()));
  const at::Tensor angles = xyz.unsqueeze(-1).mul(frequencies).flatten(2);
  return at::cat({xyz, angles.sin(), angles.cos(), normals}, -1);
}

at::Tensor mlp(Call& w, const std::string& norm, const at::Tensor& x, double eps) {
  return widened(linear(w, "mlp.c_proj", at::gelu(linear(w, "mlp.c_fc", layer_norm(w, norm, x, eps)))));
}

ddh::ParamInit start(const Config& config, int64_t fan_in) {
  return start_of(config, fan_in, normal(0.25 * std::sqrt(1 / static_cast<double>(config.point.width))));
}

void add_mlp(const Config& config, std::vector<ParamSpec>& params) {
  const int64_t width = config.point.width;
  add_linear(params, "mlp.c_fc", width, 4 * width, start(config, width), true);
  add_linear(params, "mlp.c_proj", 4 * width, width, start(config, 4 * width), true);
}

Unit points_to_queries(const Config& config) {
  const PointShape s = config.point;
  Unit unit{"point.input", kPrefix, {}, {}};
  unit.params.push_back({"query", {1 + s.latents, s.width}, start_of(config, s.width, normal(0.02))});
  // The published layer begins as torch.nn.Linear does, the others as start() says.
  const double bound = 1 / std::sqrt(static_cast<double>(s.features()));
  const ddh::ParamInit of_torch{DDH_INIT_UNIFORM, -bound, bound};
  unit.params.push_back({"input_proj.weight", {s.width, s.features()}, start_of(config, s.features(), of_torch)});
  unit.params.push_back({"input_proj.bias", {s.width}, config.start == Start::kFanIn ? kZero : of_torch});
  unit.run = [s](Call& w, const Tensors& in) {
    const at::Tensor& points = w.batch.points;  // (B, N, 6)
    Tensors out = in;
    // A copy: what a unit gives must not be a view of its weights.
    out.push_back(widened(w["query"]).expand({points.size(0), 1 + s.latents, s.width}).clone());
    out.push_back(widened(linear(w, "input_proj", fourier_features(s, points))));
    return out;
  };
  unit.cost = [s](const Load& load) {
    return Cost{2 * load.samples * static_cast<double>(s.points * s.features() * s.width), 0, 0};
  };
  return unit;
}

// Takes the queries and the points' data; gives the queries.
Unit cross_attention(const Config& config) {
  const PointShape s = config.point;
  Unit unit{"point.cross_attn", ddh::str(kPrefix, "cross_attn."), {}, {}};
  for (const char* norm : {"ln_1", "ln_2", "ln_3"}) add_norm(unit.params, norm, s.width, true);
  add_linear(unit.params, "attn.c_q", s.width, s.width, start(config, s.width), false);
  add_linear(unit.params, "attn.c_kv", s.width, 2 * s.width, start(config, s.width), false);
  add_linear(unit.params, "attn.c_proj", s.width, s.width, start(config, s.width), true);
  add_mlp(config, unit.params);
  unit.run = [s](Call& w, const Tensors& in) {
    Tensors out = in;
    const at::Tensor data = out.back();  // (B, N, width)
    out.pop_back();
    at::Tensor& q = out.back();  // (B, 1 + latents, width)
    const at::Tensor query = heads(linear(w, "attn.c_q", layer_norm(w, "ln_1", q, s.eps)), s.heads);
    // Each head has its key and its value side by side.
    const at::Tensor kv = heads(linear(w, "attn.c_kv", layer_norm(w, "ln_2", data, s.eps)), s.heads);
    const std::vector<at::Tensor> parts = kv.chunk(2, -1);
    q = q + widened(linear(w, "attn.c_proj", attention(query, parts[0], parts[1], /*causal=*/false)));
    q = q + mlp(w, "ln_3", q, s.eps);
    return out;
  };
  unit.cost = [s](const Load& load) {
    const double Q = static_cast<double>(1 + s.latents), N = static_cast<double>(s.points);
    const double C = static_cast<double>(s.width);
    return Cost{load.samples * (20 * Q * C * C + 4 * N * C * C + 4 * Q * N * C), 0, 0};
  };
  return unit;
}

Unit self_attention(const Config& config, int64_t layer) {
  const PointShape s = config.point;
  Unit unit{ddh::str("point.layer.", layer), ddh::str(kPrefix, "self_attn.resblocks.", layer, "."), {}, {}};
  for (const char* norm : {"ln_1", "ln_2"}) add_norm(unit.params, norm, s.width, true);
  add_linear(unit.params, "attn.c_qkv", s.width, 3 * s.width, start(config, s.width), false);
  add_linear(unit.params, "attn.c_proj", s.width, s.width, start(config, s.width), true);
  add_mlp(config, unit.params);
  unit.run = [s](Call& w, const Tensors& in) {
    Tensors out = in;
    at::Tensor& x = out.back();  // (B, 1 + latents, width)
    // Each head has its query, key and value side by side.
    const at::Tensor qkv = heads(linear(w, "attn.c_qkv", layer_norm(w, "ln_1", x, s.eps)), s.heads);
    const std::vector<at::Tensor> parts = qkv.chunk(3, -1);
    x = x + widened(linear(w, "attn.c_proj", attention(parts[0], parts[1], parts[2], /*causal=*/false)));
    x = x + mlp(w, "ln_2", x, s.eps);
    return out;
  };
  unit.cost = [s](const Load& load) {
    const double Q = static_cast<double>(1 + s.latents), C = static_cast<double>(s.width);
    return Cost{load.samples * (24 * Q * C * C + 4 * Q * Q * C), 0, 0};
  };
  return unit;
}

Unit last_norm(const Config& config) {
  const PointShape s = config.point;
  Unit unit{"point.ln_post", kPrefix, {}, {}};
  add_norm(unit.params, "ln_post", s.width, true);
  unit.run = [s](Call& w, const Tensors& in) {
    Tensors out = in;
    out.back() = layer_norm(w, "ln_post", in.back().narrow(1, 0, 1), s.eps);  // (B, 1, width)
    return out;
  };
  return unit;
}

}  // namespace

std::vector<Unit> point_encoder(const Config& config) {
  std::vector<Unit> units;
  units.push_back(points_to_queries(config));
  units.push_back(cross_attention(config));
  for (int64_t l = 0; l < config.point.layers; ++l) units.push_back(self_attention(config, l));
  units.push_back(last_norm(config));
  return units;
}

}  // namespace cad
