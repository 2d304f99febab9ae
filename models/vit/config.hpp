// SPDX-License-Identifier: Apache-2.0
//
// vit/config.hpp: the shape of a Vision Transformer and the names of its sizes.
//
// Letters used in this folder: B images of a micro-batch, N patches of an image, T = N + 1 tokens, C width, H heads,
// D = C / H, P side of a patch, K classes.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "ddh/sdk/plugin.hpp"

namespace vit {

// The library whose parameter names and layouts, initial values and eps of layer norms are used.
enum class Names { kHuggingFace, kTorchvision, kTimm };

struct Config {
  int64_t n_layer, n_head, width, mlp_width, patch;
  int64_t side, channels, classes;  // side of the image in pixels
  Names names;
  double eps;                         // of layer norms
  double dropout, attention_dropout;  // after dense layers and the embedding; on attention probabilities
  double stochastic_depth;            // of the last block; 0 of the first, and linear between
  uint64_t seed;
  at::ScalarType compute;

  // Options of section model. Throws ddh::Error.
  Config(const ddh::Host& host, int64_t image_side, int64_t image_channels, int64_t n_classes);

  [[nodiscard]] int64_t grid() const { return side / patch; }  // patches on a side
  [[nodiscard]] int64_t n_patches() const { return grid() * grid(); }
  [[nodiscard]] int64_t tokens() const { return n_patches() + 1; }
  [[nodiscard]] int64_t patch_numel() const { return channels * patch * patch; }
  [[nodiscard]] double drop_path(int64_t layer) const {
    return n_layer > 1 ? stochastic_depth * static_cast<double>(layer) / static_cast<double>(n_layer - 1)
                       : stochastic_depth;
  }
};

// Side of the images for the size of section model; 0: the size has none, and the data's is used.
int64_t side_of(const ddh::Host& host);

extern const char* const kSchema;  // JSON Schema of section model

}  // namespace vit
