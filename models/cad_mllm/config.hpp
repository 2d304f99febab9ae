// SPDX-License-Identifier: Apache-2.0
//
// cad_mllm/config.hpp: the shapes of the four parts of a CAD-MLLM and the names of its sizes.
//
// Letters used in this folder: B samples of a micro-batch, T tokens of a sample, C width of the language model, V its
// vocabulary, H heads, D width of a head.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "ddh/sdk/plugin.hpp"

namespace cad {

// The language model: Qwen3.
struct LlmShape {
  int64_t vocab, width, layers, heads, kv_heads, head_dim, mlp_width;
  double rope_theta = 1e6, eps = 1e-6;
};

// Hu et al. 2022: y = W x + (alpha / rank) B A dropout(x), on all seven projections of a layer.
struct LoraShape {
  int64_t rank;
  double alpha, dropout;
  [[nodiscard]] double scale() const { return alpha / static_cast<double>(rank); }
};

// The image encoder: DINOv2. It sees each view of a sample by itself.
struct ImageShape {
  int64_t side, patch, width, layers, heads;
  int64_t table_side;  // side of the images that the position table is for, in pixels
  double eps = 1e-6;
  int64_t views = 1;                    // of a sample
  std::string_view normalize = "half";  // mean and deviation of pixels (images/transform.hpp)
  [[nodiscard]] int64_t grid() const { return side / patch; }
  [[nodiscard]] int64_t table_grid() const { return table_side / patch; }
  [[nodiscard]] int64_t view_tokens() const { return grid() * grid(); }
  [[nodiscard]] int64_t view_numel() const { return 3 * side * side; }
  [[nodiscard]] int64_t tokens() const { return views * view_tokens(); }
  [[nodiscard]] int64_t numel() const { return views * view_numel(); }
};

// The point encoder: Michelangelo's.
struct PointShape {
  int64_t points, frequencies, width, layers, heads, latents;
  double eps = 1e-5;
  // Coordinates with the sine and cosine of each frequency, then the normal.
  [[nodiscard]] int64_t features() const { return 3 * (2 * frequencies + 1) + 3; }
  [[nodiscard]] int64_t numel() const { return 6 * points; }
};

struct ProjectorShape {
  int64_t hidden;
  double dropout, lr_scale;
};

enum class Names { kPlain, kPeft };
enum class Start { kPublished, kFanIn };

struct Config {
  LlmShape llm;
  LoraShape lora;
  ImageShape image;
  PointShape point;
  ProjectorShape projector;
  int64_t max_tokens;  // of prompt, target and end mark
  bool masks_prompt;   // tokens of the prompt are no targets
  Names names;
  Start start;  // how frozen weights begin
  uint64_t seed;
  at::ScalarType compute;

  // Options of section model. Throws ddh::Error.
  explicit Config(const ddh::Host& host);
};

extern const char* const kSchema;  // JSON Schema of section model

}  // namespace cad
