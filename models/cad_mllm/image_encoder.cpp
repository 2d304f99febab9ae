// SPDX-License-Identifier: Apache-2.0
//
// DINOv2 (Oquab et al. 2023) without its class token at the end: patches, pre-norm blocks with LayerScale, a last norm.
// Names are those of Hugging Face's Dinov2Model.
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/upsample_bicubic2d.h>

#include "batch.hpp"
#include "unit.hpp"

namespace cad {
namespace {

const char* const kPrefix = "image_encoder.";
const std::string kPatches = "embeddings.patch_embeddings.projection";

// (1, 1 + view tokens, width): the table itself, or stretched to the grid of the images, bicubically.
at::Tensor positions(const ImageShape& s, const at::Tensor& table) {
  at::Tensor wide = widened(table);
  if (s.grid() == s.table_grid()) return wide;
  const int64_t from = s.table_grid(), to = s.grid();
  const at::Tensor grid = wide.narrow(1, 1, from * from).transpose(1, 2).reshape({1, s.width, from, from});
  const at::Tensor stretched = at::upsample_bicubic2d(grid, {to, to}, /*align_corners=*/false);
  return at::cat({wide.narrow(1, 0, 1), stretched.flatten(2).transpose(1, 2)}, 1);
}

Unit embeddings(const Config& config) {
  const ImageShape s = config.image;
  const ddh::ParamInit published{DDH_INIT_TRUNC_NORMAL, 0, 0.02, -2, 2};
  Unit unit{"image.embeddings", kPrefix, {}, {}};
  unit.params = {
      {"embeddings.cls_token", {1, 1, s.width}, published},
      {"embeddings.position_embeddings", {1, 1 + s.table_grid() * s.table_grid(), s.width}, published},
      {kPatches + ".weight", {s.width, 3, s.patch, s.patch}, start_of(config, 3 * s.patch * s.patch, published)},
      {kPatches + ".bias", {s.width}, kZero}};
  unit.run = [s](Call& w, const Tensors& in) {
    const at::Tensor& kernel = w[kPatches + ".weight"];
    const at::Tensor pixels = w.batch.pixels.to(kernel.scalar_type());
    const at::Tensor patches = ops::autograd::convolution(pixels, kernel, w[kPatches + ".bias"], {.stride = s.patch})
                                   .flatten(2)
                                   .transpose(1, 2);
    const at::Tensor cls = widened(w["embeddings.cls_token"]).expand({pixels.size(0), 1, s.width});
    Tensors out = in;
    out.push_back(at::cat({cls, widened(patches)}, 1) + positions(s, w["embeddings.position_embeddings"]));
    return out;
  };
  unit.cost = [s](const Load& load) {
    const double patch = static_cast<double>(3 * s.patch * s.patch), width = static_cast<double>(s.width);
    return Cost{2 * load.samples * static_cast<double>(s.tokens()) * patch * width, 0, 0};
  };
  return unit;
}

Unit block(const Config& config, int64_t layer) {
  const ImageShape s = config.image;
  const auto start = [&](int64_t in) { return start_of(config, in, {DDH_INIT_TRUNC_NORMAL, 0, 0.02, -2, 2}); };
  Unit unit{ddh::str("image.layer.", layer), ddh::str(kPrefix, "encoder.layer.", layer, "."), {}, {}};
  add_norm(unit.params, "norm1", s.width, true);
  for (const char* part : {"query", "key", "value"})
    add_linear(unit.params, std::string("attention.attention.") + part, s.width, s.width, start(s.width), true);
  add_linear(unit.params, "attention.output.dense", s.width, s.width, start(s.width), true);
  unit.params.push_back({"layer_scale1.lambda1", {s.width}, kOne});
  add_norm(unit.params, "norm2", s.width, true);
  add_linear(unit.params, "mlp.fc1", s.width, 4 * s.width, start(s.width), true);
  add_linear(unit.params, "mlp.fc2", 4 * s.width, s.width, start(4 * s.width), true);
  unit.params.push_back({"layer_scale2.lambda1", {s.width}, kOne});
  unit.run = [s](Call& w, const Tensors& in) {
    const auto part = [&](const char* name, const at::Tensor& y) {
      return heads(linear(w, std::string("attention.attention.") + name, y), s.heads);
    };
    Tensors out = in;
    at::Tensor& x = out.back();  // (B views, 1 + view tokens, width)
    const at::Tensor y = layer_norm(w, "norm1", x, s.eps);
    const at::Tensor attended = attention(part("query", y), part("key", y), part("value", y), /*causal=*/false);
    x = x + widened(w["layer_scale1.lambda1"]) * widened(linear(w, "attention.output.dense", attended));
    const at::Tensor hidden = at::gelu(linear(w, "mlp.fc1", layer_norm(w, "norm2", x, s.eps)));
    x = x + widened(w["layer_scale2.lambda1"]) * widened(linear(w, "mlp.fc2", hidden));
    return out;
  };
  unit.cost = [s](const Load& load) {
    const double T = static_cast<double>(1 + s.view_tokens()), C = static_cast<double>(s.width);
    return Cost{load.samples * static_cast<double>(s.views) * (24 * T * C * C + 4 * T * T * C), 0, 0};
  };
  return unit;
}

Unit last_norm(const Config& config) {
  const ImageShape s = config.image;
  Unit unit{"image.layernorm", kPrefix, {}, {}};
  add_norm(unit.params, "layernorm", s.width, true);
  unit.run = [s](Call& w, const Tensors& in) {
    Tensors out = in;
    const at::Tensor patches = layer_norm(w, "layernorm", in.back(), s.eps).narrow(1, 1, s.view_tokens());
    out.back() = patches.contiguous().view({-1, s.tokens(), s.width});
    return out;
  };
  return unit;
}

}  // namespace

std::vector<Unit> image_encoder(const Config& config) {
  std::vector<Unit> units = {embeddings(config)};
  for (int64_t l = 0; l < config.image.layers; ++l) units.push_back(block(config, l));
  units.push_back(last_norm(config));
  return units;
}

}  // namespace cad
