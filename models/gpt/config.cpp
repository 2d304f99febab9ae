// SPDX-License-Identifier: Apache-2.0
#include "config.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "../ops/model_products.hpp"
#include "../ops/sizes.hpp"

namespace gpt {
namespace {

struct Size {
  std::string_view name;
  int64_t n_layer, n_head, width, context;
  bool bias;
};
// The character models of nanoGPT (CPU and GPU settings) and the four of GPT-2 (Radford et al. 2019).
constexpr std::array<Size, 7> kSizes = {{{"0.8M", 4, 4, 128, 64, false},
                                         {"10.8M", 6, 6, 384, 256, false},
                                         {"gpt2", 12, 12, 768, 1024, true},
                                         {"gpt2-medium", 24, 16, 1024, 1024, true},
                                         {"gpt2-large", 36, 20, 1280, 1024, true},
                                         {"gpt2-xl", 48, 25, 1600, 1024, true},
                                         {"custom", 0, 0, 0, 0, false}}};

const Size& size_of(const ddh::Host& host) { return ops::size_of(host, kSizes); }

constexpr ddh::Option kOptions[] = {
    {"size", "string", R"("0.8M")",
     R"("enum": ["0.8M", "10.8M", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "custom"])",
     "a known model's layers, heads, width and context; the next options override them; custom: give them all"},
    {"n_layer", "integer", "0", R"("minimum": 0, "maximum": 1024)", "transformer blocks; 0: from size"},
    {"n_head", "integer", "0", R"("minimum": 0, "maximum": 1024)", "attention heads; 0: from size"},
    {"n_embd", "integer", "0", R"("minimum": 0, "maximum": 131072)", "width of the residual stream; 0: from size"},
    {"context", "integer", "0", R"("minimum": 0, "maximum": 1048576, "x-unit": "tokens", "x-affects": "memory")",
     "tokens of a sample; 0: from size"},
    {"short_context", "integer", "0", R"("minimum": 0, "maximum": 1048576, "x-unit": "tokens", "x-affects": "memory")",
     "tokens of a sample where they are fewer than the context, with the same parameters, for a quick test of a long "
     "context; 0: the context"},
    {"eval_stride", "integer", "0", R"("minimum": 0, "maximum": 1048576, "x-unit": "tokens")",
     "tokens from the start of an evaluation sample to the start of the next; 0: the context, so that each target "
     "counts once"},
    {"block_size", "integer", "0", R"("minimum": 0, "maximum": 1048576, "x-unit": "tokens")",
     "rows of the position table; 0: as context"},
    {"vocab", "integer", "0", R"("minimum": 0, "maximum": 16777216)",
     "rows of the token embedding; 0: the tokenizer's size, or the number of characters in the text, or 50304 for a "
     ".bin"},
    {"tokenizer", "string", R"("")", R"("x-path": true)",
     "folder with the vocab.json and merges.txt of a byte-pair encoding; empty: characters, or the ids of a .bin"},
    {"bias", "string", R"("auto")", R"("enum": ["auto", "on", "off"])",
     "biases in linear layers and layer norms; auto: off for character models, on for GPT-2"},
    {"activation", "string", R"("gelu")", R"("enum": ["gelu", "gelu_tanh"])",
     "gelu: exact; gelu_tanh: GPT-2's approximation"},
    {"dropout", "number", "0.0", R"("minimum": 0, "maximum": 0.9)",
     "dropout probability of embeddings, attention and residual branches"},
    {"tied", "boolean", "true", "", "the head uses the token embedding"},
    ops::kMatmulOption,
    ddh::kOperatorsOption,
};

int64_t full_context(const ddh::Host& host) { return ops::given_or(host, "model.context", size_of(host).context); }

}  // namespace

int64_t context_of(const ddh::Host& host) {
  return std::min(full_context(host), ops::given_or(host, "model.short_context", full_context(host)));
}

Config::Config(const ddh::Host& host, int64_t data_vocab)
    : n_layer(ops::given_or(host, "model.n_layer", size_of(host).n_layer)),
      n_head(ops::given_or(host, "model.n_head", size_of(host).n_head)),
      width(ops::given_or(host, "model.n_embd", size_of(host).width)),
      context(context_of(host)),
      eval_stride(ops::given_or(host, "model.eval_stride", context_of(host))),
      positions(ops::given_or(host, "model.block_size", full_context(host))),
      vocab(ops::given_or(host, "model.vocab", data_vocab)),
      bias(host.text("model.bias") == "auto" ? size_of(host).bias : host.text("model.bias") == "on"),
      tied(host.flag("model.tied")),
      tanh_gelu(host.text("model.activation") == "gelu_tanh"),
      dropout(host.f64("model.dropout")),
      seed(static_cast<uint64_t>(host.i64("run.seed"))),
      compute(ops::compute_type(host, "gpt")) {
  if (positions < context) {
    ddh::fail(DDH_INVALID_ARGUMENT, "model.block_size=", positions, " is less than the context of ", context,
              " tokens; raise it or lower model.context");
  }
  ops::require_whole_heads(width, n_head, "model.n_embd");
}

const char* const kSchema = ddh::kSchemaOf<kOptions>;

}  // namespace gpt
