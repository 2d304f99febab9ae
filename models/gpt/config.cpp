// SPDX-License-Identifier: Apache-2.0
#include "config.hpp"

#include <array>
#include <string_view>

#include "../ops/model_products.hpp"

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

const Size& size_of(const ddh::Host& host) {
  const std::string name = host.text("model.size");
  for (const Size& size : kSizes) {
    if (size.name == name) return size;
  }
  ddh::fail(DDH_NOT_FOUND, "model.size '", name, "' is unknown");  // the schema lists the names
}

int64_t given_or(const ddh::Host& host, const char* key, int64_t from_size) {
  const int64_t given = host.i64(key);
  if (given == 0 && from_size == 0) ddh::fail(DDH_INVALID_ARGUMENT, "model.size=custom needs ", key, "; give it");
  return given > 0 ? given : from_size;
}

}  // namespace

int64_t context_of(const ddh::Host& host) { return given_or(host, "model.context", size_of(host).context); }

Config::Config(const ddh::Host& host, int64_t data_vocab)
    : n_layer(given_or(host, "model.n_layer", size_of(host).n_layer)),
      n_head(given_or(host, "model.n_head", size_of(host).n_head)),
      width(given_or(host, "model.n_embd", size_of(host).width)),
      context(context_of(host)),
      positions(given_or(host, "model.block_size", context_of(host))),
      vocab(given_or(host, "model.vocab", data_vocab)),
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
  if (width % n_head != 0) {
    ddh::fail(DDH_INVALID_ARGUMENT, "model.n_embd=", width, " is not a multiple of model.n_head=", n_head,
              "; change one of them");
  }
}

const char* const kSchema = R"({"type": "object", "properties": {
  "size": {"type": "string", "default": "0.8M",
    "enum": ["0.8M", "10.8M", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "custom"],
    "description": "a known model's layers, heads, width and context; the next options override them; custom: none"},
  "n_layer": {"type": "integer", "default": 0, "minimum": 0, "maximum": 1024,
    "description": "transformer blocks; 0: from size"},
  "n_head": {"type": "integer", "default": 0, "minimum": 0, "maximum": 1024,
    "description": "attention heads; 0: from size"},
  "n_embd": {"type": "integer", "default": 0, "minimum": 0, "maximum": 131072,
    "description": "width of the residual stream; 0: from size"},
  "context": {"type": "integer", "default": 0, "minimum": 0, "maximum": 1048576, "x-unit": "tokens",
    "description": "tokens of a sample; 0: from size", "x-affects": "memory"},
  "block_size": {"type": "integer", "default": 0, "minimum": 0, "maximum": 1048576, "x-unit": "tokens",
    "description": "rows of the position table; 0: as context"},
  "vocab": {"type": "integer", "default": 0, "minimum": 0, "maximum": 16777216,
    "description": "rows of the token embedding; 0: the characters of a text, 50304 for token files"},
  "bias": {"type": "string", "default": "auto", "enum": ["auto", "on", "off"],
    "description": "biases in linear layers and layer norms; auto: off for character models, on for GPT-2"},
  "activation": {"type": "string", "default": "gelu", "enum": ["gelu", "gelu_tanh"],
    "description": "gelu: exact; gelu_tanh: GPT-2's approximation"},
  "dropout": {"type": "number", "default": 0.0, "minimum": 0, "maximum": 0.9,
    "description": "dropout probability of embeddings, attention and residual branches"},
  "tied": {"type": "boolean", "default": true, "description": "the head uses the token embedding"},
  "matmul": {"type": "string", "default": "auto", "enum": ["auto", "measure", "onednn", "onednn_gemm", "aten"],
    "description": "library of matrix products; auto: from a table; measure: auto, and prints the time of each",
    "x-affects": "numerics"}
}})";

}  // namespace gpt
