// SPDX-License-Identifier: Apache-2.0
#include "names.hpp"

#include <cmath>

namespace vit {
namespace {

constexpr ddh::ParamInit kZero{}, kOne{DDH_INIT_CONSTANT, 1};

// A truncated normal distribution of torch.nn.init, whose bounds are -2 and 2.
ddh::ParamInit truncated(double deviation) { return {DDH_INIT_TRUNC_NORMAL, 0, deviation, -2, 2}; }
ddh::ParamInit uniform(double bound) { return {DDH_INIT_UNIFORM, -bound, bound}; }
// Glorot and Bengio 2010.
ddh::ParamInit xavier(int64_t in, int64_t out) { return uniform(std::sqrt(6.0 / static_cast<double>(in + out))); }

void add_layer(std::vector<ParamSpec>& params, const std::string& name, const std::vector<int64_t>& shape,
               ddh::ParamInit weight, ddh::ParamInit bias) {
  params.push_back({name + "weight", shape, weight});
  params.push_back({name + "bias", {shape[0]}, bias});
}

// Names of a block's layers below the block's prefix; `qkv`: one prefix, or three.
struct BlockNames {
  std::string prefix, norm_1;
  std::vector<std::string> qkv;
  std::string projection, norm_2, fc_1, fc_2;
};

BlockNames block_names(Names names, int64_t layer) {
  switch (names) {
    case Names::kHuggingFace:
      return {ddh::str("vit.encoder.layer.", layer, "."),
              "layernorm_before.",
              {"attention.attention.query.", "attention.attention.key.", "attention.attention.value."},
              "attention.output.dense.",
              "layernorm_after.",
              "intermediate.dense.",
              "output.dense."};
    case Names::kTorchvision:
      return {ddh::str("encoder.layers.encoder_layer_", layer, "."),
              "ln_1.",
              {"self_attention.in_proj_"},
              "self_attention.out_proj.",
              "ln_2.",
              "mlp.0.",
              "mlp.3."};
    case Names::kTimm:
      break;
  }
  return {ddh::str("blocks.", layer, "."), "norm1.", {"attn.qkv."}, "attn.proj.", "norm2.", "mlp.fc1.", "mlp.fc2."};
}

}  // namespace

std::vector<ParamSpec> embedding_params(const Config& c) {
  const std::vector<int64_t> token = {1, 1, c.width}, positions = {1, c.tokens(), c.width},
                             patch = {c.width, c.channels, c.patch, c.patch};
  const ddh::ParamInit normal{DDH_INIT_NORMAL, 0, 0.02};
  const double fan_in = static_cast<double>(c.patch_numel());
  std::vector<ParamSpec> params;
  switch (c.names) {
    case Names::kHuggingFace:
      params = {{"vit.embeddings.cls_token", token, truncated(0.02)},
                {"vit.embeddings.position_embeddings", positions, truncated(0.02)}};
      add_layer(params, "vit.embeddings.patch_embeddings.projection.", patch, truncated(0.02), kZero);
      break;
    case Names::kTorchvision:
      params = {{"class_token", token, kZero}, {"encoder.pos_embedding", positions, normal}};
      add_layer(params, "conv_proj.", patch, truncated(std::sqrt(1 / fan_in)), kZero);
      break;
    case Names::kTimm:
      params = {{"cls_token", token, {DDH_INIT_NORMAL, 0, 1e-6}}, {"pos_embed", positions, truncated(0.02)}};
      add_layer(params, "patch_embed.proj.", patch, uniform(1 / std::sqrt(fan_in)), uniform(1 / std::sqrt(fan_in)));
      break;
  }
  return params;
}

std::vector<ParamSpec> block_params(const Config& c, int64_t layer) {
  const int64_t C = c.width, M = c.mlp_width;
  const bool tv = c.names == Names::kTorchvision;
  const BlockNames names = block_names(c.names, layer);
  const auto weights = [&](int64_t in, int64_t out) { return tv ? xavier(in, out) : truncated(0.02); };
  const ddh::ParamInit mlp_bias = tv ? ddh::ParamInit{DDH_INIT_NORMAL, 0, 1e-6} : kZero;
  std::vector<ParamSpec> params;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape, ddh::ParamInit weight,
                       ddh::ParamInit bias = kZero) { add_layer(params, names.prefix + name, shape, weight, bias); };
  add(names.norm_1, {C}, kOne);
  const int64_t out = 3 * C / static_cast<int64_t>(names.qkv.size());
  for (const std::string& part : names.qkv) add(part, {out, C}, weights(C, out));
  // torchvision keeps the initial values of torch.nn.Linear here: uniform within 1 / sqrt(fan-in).
  add(names.projection, {C, C}, tv ? uniform(1 / std::sqrt(static_cast<double>(C))) : truncated(0.02));
  add(names.norm_2, {C}, kOne);
  add(names.fc_1, {M, C}, weights(C, M), mlp_bias);
  add(names.fc_2, {C, M}, weights(M, C), mlp_bias);
  return params;
}

std::vector<ParamSpec> head_params(const Config& c) {
  const bool hf = c.names == Names::kHuggingFace, tv = c.names == Names::kTorchvision;
  std::vector<ParamSpec> params;
  add_layer(params, hf ? "vit.layernorm." : tv ? "encoder.ln." : "norm.", {c.width}, kOne, kZero);
  add_layer(params,
            hf   ? "classifier."
            : tv ? "heads.head."
                 : "head.",
            {c.classes, c.width}, tv ? kZero : truncated(0.02), kZero);
  return params;
}

}  // namespace vit
