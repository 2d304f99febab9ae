// SPDX-License-Identifier: Apache-2.0
//
// Qwen3 with LoRA adapters on all seven projections of a layer, and the projectors that turn features of the encoders into
// tokens of it. The tokens of a sample are [image] [point cloud] [text].
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/silu.h>

#include <algorithm>
#include <cmath>

#include "../ops/language_layers.hpp"
#include "../ops/products.hpp"
#include "batch.hpp"
#include "ddh/sdk/later_gradients.hpp"
#include "ddh/sdk/torch/activations.hpp"
#include "unit.hpp"

namespace cad {
namespace {

// Where names of the language model begin, and those of its weights and adapters.
std::string llm_prefix(const Config& config) { return config.names == Names::kPeft ? "llm.base_model.model." : "llm."; }
const char* base_name(const Config& config) { return config.names == Names::kPeft ? ".base_layer" : ""; }
const char* lora_name(const Config& config) { return config.names == Names::kPeft ? ".default" : ""; }

// Of layers that the file of weights gives.
ddh::ParamInit published(const Config& config, int64_t fan_in) { return start_of(config, fan_in, normal(0.02)); }

// A frozen matrix and its adapter: A as torch.nn.Linear begins, B zero, so that training begins at the base model.
void add_adapted(const Config& config, std::vector<ParamSpec>& params, const std::string& layer, int64_t in,
                 int64_t out) {
  add_linear(params, layer + base_name(config), in, out, published(config, in), false);
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  params.push_back({layer + ".lora_A" + lora_name(config) + ".weight",
                    {config.lora.rank, in},
                    {DDH_INIT_UNIFORM, -bound, bound},
                    true});
  params.push_back({layer + ".lora_B" + lora_name(config) + ".weight", {out, config.lora.rank}, kZero, true});
}

// W x + (alpha / rank) B A dropout(x)
at::Tensor adapted(const Config& config, Call& w, const std::string& layer, const at::Tensor& x) {
  const at::Tensor dropped = w.dropout(x, config.lora.dropout);
  const at::Tensor low = linear(w, layer + ".lora_A" + lora_name(config), dropped);
  const at::Tensor change = linear(w, layer + ".lora_B" + lora_name(config), low);
  return linear(w, layer + base_name(config), x).add(change, config.lora.scale());
}

// Rotary positions 0 .. T-1 (Su et al. 2021): the pair (j, j + D/2) turns by position * theta^(-2j/D).
struct Rotary {
  at::Tensor cos, sin;  // (T, D)
  Rotary(const LlmShape& s, int64_t T, at::Device device) {
    const at::TensorOptions options = at::TensorOptions(at::kFloat).device(device);
    const at::Tensor exponents = at::arange(0, s.head_dim, 2, options).div(s.head_dim);
    const at::Tensor rates = at::pow(s.rope_theta, exponents).reciprocal();
    const at::Tensor half = at::arange(T, options).unsqueeze(1).mul(rates);
    const at::Tensor angles = at::cat({half, half}, 1);
    cos = angles.cos();
    sin = angles.sin();
  }
  // x (B, T, heads, D) -> (B, heads, T, D)
  [[nodiscard]] at::Tensor turned(const at::Tensor& x) const {
    return ops::autograd::rotated(x, cos, sin).transpose(1, 2);
  }
};

// The padding is at the right, so no token that counts sees it through the causal mask.
// `y` in the compute dtype.
at::Tensor self_attention(const Config& config, Call& w, const at::Tensor& y) {
  const LlmShape& s = config.llm;
  const Rotary rotary(s, y.size(1), y.device());
  const auto part = [&](const char* name, int64_t n) {
    return by_heads(adapted(config, w, std::string("self_attn.") + name, y), n);
  };
  const at::Tensor q = rotary.turned(rms_norm(w, "self_attn.q_norm", part("q_proj", s.heads), s.eps));
  const at::Tensor k = rotary.turned(rms_norm(w, "self_attn.k_norm", part("k_proj", s.kv_heads), s.eps));
  const at::Tensor v = part("v_proj", s.kv_heads).transpose(1, 2);
  const int64_t repeats = s.heads / s.kv_heads;
  const at::Tensor attended =
      attention(q, k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1), /*causal=*/true);
  return widened(adapted(config, w, "self_attn.o_proj", attended));
}

// Shazeer 2020: down(silu(gate) * up)
at::Tensor swiglu(const Config& config, Call& w, const at::Tensor& y) {
  const at::Tensor gate = at::silu(adapted(config, w, "mlp.gate_proj", y));
  return widened(adapted(config, w, "mlp.down_proj", gate.mul(adapted(config, w, "mlp.up_proj", y))));
}

// The memory that a tensor of n bytes takes.
double block(double n) { return ddh::ActivationAllocator::block_bytes(n); }

// What a backward keeps of a weight (out, in) whose gradient comes in blocks: the gradient, or the input and the gradient of
// the output if that is less (ddh::TorchModel::linear). A strategy that asks for whole gradients keeps nothing.
double kept_for_blocks(const Load& load, double rows, int64_t in, int64_t out) {
  if (ddh::grad_block_of({out, in}) == 0) return 0;
  const auto of_input = rows * static_cast<double>(in), of_output = rows * static_cast<double>(out);
  const auto gradient = static_cast<double>(in) * static_cast<double>(out);
  if (gradient <= of_input + of_output) return block(load.narrow * gradient);
  return block(load.narrow * of_input) + block(load.narrow * of_output);
}

// In a layer with dropout before its adapters. Each keeps an input of its own and its mask, in place of the norms' results and
// the MLP's product. The mask of an input that needs no gradient is not kept, and that of attention's result is fp32.
double kept_by_dropout(const LlmShape& s, const Load& load) {
  const double N = load.samples * load.tokens, wide = 4, Q = static_cast<double>(s.heads * s.head_dim);
  const double of_stream = block(N * load.narrow * static_cast<double>(s.width));
  return (load.input_learns ? 8 : 5) * of_stream + block(N * load.narrow * static_cast<double>(s.mlp_width)) +
         (load.narrow < wide ? 1 : 2) * block(N * wide * Q);
}

// The parts in which products compute the sum of their input's gradient: the most of the layers, (in, out) each.
double most_parts(const Load& load, double rows, std::initializer_list<std::pair<int64_t, int64_t>> layers) {
  int64_t most = 0;
  for (const auto& [in, out] : layers)
    most = std::max(most, ops::bytes_of_parts({static_cast<int64_t>(rows), in, out}, load.dtype));
  return load.by_operators ? 0 : block(static_cast<double>(most));
}

// Products with frozen weights have a gradient of their input alone, adapters have both, attention has
// twice as many, or 2.5 times where it computes the probabilities again.
Cost layer_cost(const LlmShape& s, const LoraShape& lora, const Load& load) {
  const double rank = static_cast<double>(lora.rank);
  const double N = load.samples * load.tokens, C = static_cast<double>(s.width), M = static_cast<double>(s.mlp_width);
  const double H = static_cast<double>(s.heads), KV = static_cast<double>(s.kv_heads);
  const double Q = H * static_cast<double>(s.head_dim), K = KV * static_cast<double>(s.head_dim), wide = 4;
  const double base = 2 * N * (2 * C * Q + 2 * C * K + 3 * C * M);
  const double adapters = 2 * N * rank * (2 * (C + Q) + 2 * (C + K) + 3 * (C + M));
  const double attention = 4 * N * load.tokens * Q;
  // The streams and reciprocal deviations; q and k before and after their norms, v, the result and its log-sum-exp.
  double kept = 2 * block(N * wide * C) + 2 * block(N * wide) + 5 * block(N * wide * Q) + block(N * wide * K) +
                2 * block(N * wide * H) + block(N * wide * KV) + 2 * block(load.tokens * Q / H * wide);
  if (load.by_operators) kept += block(load.samples * H * load.tokens * load.tokens * wide) - block(N * wide * H);
  // What adapters take and give inside; gate, up, silu(gate) and their product.
  kept += 2 * block(N * load.narrow * C) + 7 * block(N * load.narrow * rank) + 4 * block(N * load.narrow * M) +
          (load.narrow < wide ? block(N * load.narrow * Q) : 0);
  if (lora.dropout > 0) kept += kept_by_dropout(s, load);
  // What q, k and v and their adapters would give the input.
  const double of_input = 2 * N * (C * Q + 2 * C * K + 3 * rank * C);
  const double of_attention = (load.by_operators ? 2 : 2.5) * attention;
  const double backward = base + 2 * adapters + of_attention - (load.input_learns ? 0 : of_input);
  // The MLP has gradients of its product, and then of both factors; by then those of its last adapter are kept. Before that, in
  // 16 bits, the gradient of the result is narrowed, for the frozen matrix and for the adapter.
  const double stream = block(N * wide * C), narrowed = load.narrow < wide ? block(N * load.narrow * C) : 0;
  const double of_product = block(N * load.narrow * M);
  const double later = kept_for_blocks(load, N, s.mlp_width, lora.rank) + kept_for_blocks(load, N, lora.rank, s.width);
  // The mask of the MLP's product is fp32 before it is narrowed, and stays until the product is masked, beside the product.
  const double of_mask = lora.dropout > 0 && load.narrow < wide ? block(N * wide * M) + of_product : 0;
  return {base + adapters + attention,
          backward,
          kept,
          stream,
          std::max(stream, of_mask),
          2 * stream + std::max(2 * of_product + later, of_product + 2 * narrowed) +
              most_parts(load, N, {{s.width, s.mlp_width}, {s.width, s.heads * s.head_dim}})};
}

Unit layer(const Config& config, int64_t index) {
  const LlmShape& s = config.llm;
  const int64_t q_width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
  Unit unit{ddh::str("layer.", index), ddh::str(llm_prefix(config), "model.layers.", index, "."), {}, {}};
  add_adapted(config, unit.params, "self_attn.q_proj", s.width, q_width);
  add_adapted(config, unit.params, "self_attn.k_proj", s.width, kv_width);
  add_adapted(config, unit.params, "self_attn.v_proj", s.width, kv_width);
  add_adapted(config, unit.params, "self_attn.o_proj", q_width, s.width);
  add_adapted(config, unit.params, "mlp.gate_proj", s.width, s.mlp_width);
  add_adapted(config, unit.params, "mlp.up_proj", s.width, s.mlp_width);
  add_adapted(config, unit.params, "mlp.down_proj", s.mlp_width, s.width);
  add_norm(unit.params, "self_attn.q_norm", s.head_dim, false);
  add_norm(unit.params, "self_attn.k_norm", s.head_dim, false);
  add_norm(unit.params, "input_layernorm", s.width, false);
  add_norm(unit.params, "post_attention_layernorm", s.width, false);
  unit.run = [&config](Call& w, const Tensors& in) -> Tensors {
    const auto norm = [&](const char* name, const at::Tensor& x) {
      return rms_norm(w, name, x, config.llm.eps).to(config.compute);
    };
    const at::Tensor h = in.back() + self_attention(config, w, norm("input_layernorm", in.back()));
    return {h + swiglu(config, w, norm("post_attention_layernorm", h))};
  };
  unit.cost = [&config](const Load& load) { return layer_cost(config.llm, config.lora, load); };
  return unit;
}

}  // namespace

Unit projector(const Config& config, const std::string& modality, int64_t in, int64_t tokens, bool is_first) {
  const ProjectorShape s = config.projector;
  Unit unit{modality + ".projector", modality + "_projector.", {}, {}};
  // Glorot and Bengio 2010.
  const auto xavier = [](int64_t from, int64_t to) -> ddh::ParamInit {
    const double bound = std::sqrt(6.0 / static_cast<double>(from + to));
    return {DDH_INIT_UNIFORM, -bound, bound};
  };
  add_linear(unit.params, "projector.0", in, s.hidden, xavier(in, s.hidden), true);
  add_linear(unit.params, "projector.3", s.hidden, config.llm.width, xavier(s.hidden, config.llm.width), true);
  for (ParamSpec& param : unit.params) {
    param.trains = true;
    param.lr_scale = s.lr_scale;
  }
  unit.run = [s, is_first](Call& w, const Tensors& in_front) {
    Tensors out = in_front;
    at::Tensor& x = is_first ? out.front() : out.back();
    x = widened(linear(w, "projector.3", w.dropout(at::gelu(linear(w, "projector.0", x)), s.dropout)));
    return out;
  };
  unit.cost = [s, in, out = config.llm.width, tokens](const Load& load) {
    const double N = load.samples * static_cast<double>(tokens), hidden = static_cast<double>(s.hidden);
    const double first = 2 * N * static_cast<double>(in) * hidden, second = 2 * N * hidden * static_cast<double>(out);
    // Features come without a gradient. They, the hidden layer before and after its activation, and the tokens are kept;
    // with dropout its mask too.
    const double features = N * static_cast<double>(in), tokens_out = block(4 * N * static_cast<double>(out));
    const double of_hidden = block(N * load.narrow * hidden);
    return Cost{
        first + second,
        first + 2 * second,
        block(4 * features) + (load.narrow < 4 ? block(load.narrow * features) : 0) +
            (s.dropout > 0 ? 3 : 2) * of_hidden + tokens_out,
        block(4 * features) + tokens_out,
        of_hidden,
        tokens_out + 2 * of_hidden + kept_for_blocks(load, N, in, s.hidden) + kept_for_blocks(load, N, s.hidden, out)};
  };
  return unit;
}

Unit token_embedding(const Config& config) {
  Unit unit{"embed_tokens", llm_prefix(config), {}, {}};
  unit.params.push_back({"model.embed_tokens.weight",
                         {config.llm.vocab, config.llm.width},
                         config.start == Start::kFanIn ? normal(1) : normal(0.02)});
  unit.run = [](Call& w, const Tensors& in) -> Tensors {
    std::vector<at::Tensor> parts(in.begin(), in.end());
    parts.push_back(widened(at::embedding(w["model.embed_tokens.weight"], w.batch.ids)));
    return {at::cat(parts, 1)};
  };
  return unit;
}

std::vector<Unit> decoder(const Config& config) {
  std::vector<Unit> units;
  for (int64_t l = 0; l < config.llm.layers; ++l) units.push_back(layer(config, l));
  return units;
}

Unit head(const Config& config) {
  Unit unit{"head", llm_prefix(config), {}, {}};
  add_norm(unit.params, "model.norm", config.llm.width, false);
  add_linear(unit.params, "lm_head", config.llm.width, config.llm.vocab, published(config, config.llm.width), false);
  // Logits of the rows that predict a target, and of no others.
  unit.run = [&config](Call& w, const Tensors& in) -> Tensors {
    const at::Tensor rows = in.back().flatten(0, 1).index_select(0, w.batch.rows);
    return {widened(linear(w, "lm_head", rms_norm(w, "model.norm", rows, config.llm.eps)))};
  };
  // The last stream, its rows that count, and the logarithms of their probabilities are kept.
  unit.cost = [&config](const Load& load) {
    const double C = static_cast<double>(config.llm.width), V = static_cast<double>(config.llm.vocab);
    const double product = 2 * load.rows * C * V;
    const double stream = block(4 * load.samples * load.tokens * C), logits = block(4 * load.rows * V);
    return Cost{product,
                product,
                stream + block(4 * load.rows * C) + block(4 * load.rows) + logits,
                stream,
                logits + (load.narrow < 4 ? block(load.narrow * load.rows * V) : 0),
                2 * logits + most_parts(load, load.rows, {{config.llm.width, config.llm.vocab}})};
  };
  return unit;
}

}  // namespace cad
