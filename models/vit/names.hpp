// SPDX-License-Identifier: Apache-2.0
//
// vit/names.hpp: the parameters of a Vision Transformer under the names of Hugging Face transformers
// (ViTForImageClassification), torchvision (VisionTransformer) and timm (VisionTransformer), with their initial values.
#pragma once

#include <string>
#include <vector>

#include "config.hpp"
#include "ddh/sdk/model.hpp"

namespace vit {

struct DDH_HIDDEN ParamSpec {
  std::string name;
  std::vector<int64_t> shape;
  ddh::ParamInit init;
  [[nodiscard]] uint32_t attributes() const { return shape.size() < 2 ? DDH_PARAM_NO_DECAY : 0; }
};

// In the order of the views. q, k and v are three layers in the layout of Hugging Face, else one of (3 C, C).
std::vector<ParamSpec> embedding_params(const Config& c);  // class token, positions; weight and bias of the patches
std::vector<ParamSpec> block_params(const Config& c, int64_t layer);
std::vector<ParamSpec> head_params(const Config& c);  // final layer norm, classifier

}  // namespace vit
