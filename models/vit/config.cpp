// SPDX-License-Identifier: Apache-2.0
#include "config.hpp"

#include <array>
#include <string>
#include <string_view>

#include "../images/loader.hpp"
#include "../ops/model_products.hpp"
#include "../ops/sizes.hpp"
#include "ddh/sdk/options.hpp"

namespace vit {
namespace {

struct Size {
  std::string_view name;
  int64_t n_layer, n_head, width, patch, side;
};
// Ti and S: Touvron et al. 2021; B, L, H: Dosovitskiy et al. 2021. small: for images of MNIST's and CIFAR-10's size.
constexpr std::array<Size, 8> kSizes = {{{"Ti", 12, 3, 192, 16, 224},
                                         {"S", 12, 6, 384, 16, 224},
                                         {"B", 12, 12, 768, 16, 224},
                                         {"L", 24, 16, 1024, 16, 224},
                                         {"H", 32, 16, 1280, 14, 224},
                                         {"H16", 32, 16, 1280, 16, 224},
                                         {"small", 6, 4, 64, 4, 0},
                                         {"custom", 0, 0, 0, 0, 0}}};

const Size& size_of(const ddh::Host& host) { return ops::size_of(host, kSizes); }

Names names_of(const std::string& name) {
  return name == "hf" ? Names::kHuggingFace : name == "timm" ? Names::kTimm : Names::kTorchvision;
}

constexpr ddh::Option kOwnOptions[] = {
    {"size", "string", R"("small")", R"("enum": ["Ti", "S", "B", "L", "H", "H16", "small", "custom"])",
     "layers, heads, width, patch and image of a known model; the next options override them; custom: give them all"},
    {"n_layer", "integer", "0", R"("minimum": 0, "maximum": 1024)", "transformer blocks; 0: from size"},
    {"n_head", "integer", "0", R"("minimum": 0, "maximum": 1024)", "attention heads; 0: from size"},
    {"width", "integer", "0", R"("minimum": 0, "maximum": 131072)", "width of a token; 0: from size"},
    {"mlp_width", "integer", "0", R"("minimum": 0, "maximum": 524288)", "hidden width of the MLP; 0: 4 times width"},
    {"patch", "integer", "0", R"("minimum": 0, "maximum": 4096, "x-unit": "pixels")",
     "side of a patch; 0: from size, or 7 if size is small and the image has 28 pixels"},
    {"names", "string", R"("tv")", R"("enum": ["hf", "tv", "timm"])",
     "parameter names, layouts, initial values and eps of Hugging Face, torchvision or timm"},
    {"layer_norm_eps", "number", "0.0", R"("minimum": 0, "maximum": 1, "x-affects": "numerics")",
     "epsilon of layer norms; 0: 1e-12 with the names of Hugging Face, else 1e-6"},
    {"dropout", "number", "0.0", R"("minimum": 0, "maximum": 0.9)",
     "dropout after the embedding and after dense layers other than query, key and value"},
    {"attention_dropout", "number", "0.0", R"("minimum": 0, "maximum": 0.9)", "dropout of attention probabilities"},
    {"stochastic_depth", "number", "0.0", R"("minimum": 0, "maximum": 0.9)",
     "probability with which the last block's branches are left out for an image; falls linearly to 0 in the first"},
    ops::kMatmulOption,
    ddh::kOperatorsOption,
};
constexpr auto kAllOptions = ddh::joined(kOwnOptions, images::kOptions);

}  // namespace

const char* const kSchema = ddh::kSchemaOf<kAllOptions>;

int64_t side_of(const ddh::Host& host) { return size_of(host).side; }

Config::Config(const ddh::Host& host, int64_t image_side, int64_t image_channels, int64_t n_classes)
    : n_layer(ops::given_or(host, "model.n_layer", size_of(host).n_layer)),
      n_head(ops::given_or(host, "model.n_head", size_of(host).n_head)),
      width(ops::given_or(host, "model.width", size_of(host).width)),
      mlp_width(host.i64("model.mlp_width") > 0 ? host.i64("model.mlp_width") : 4 * width),
      patch(ops::given_or(host, "model.patch",
                          size_of(host).name == "small" && image_side == 28 ? 7 : size_of(host).patch)),
      side(image_side),
      channels(image_channels),
      classes(n_classes),
      names(names_of(host.text("model.names"))),
      eps(host.f64("model.layer_norm_eps")),
      dropout(host.f64("model.dropout")),
      attention_dropout(host.f64("model.attention_dropout")),
      stochastic_depth(host.f64("model.stochastic_depth")),
      seed(static_cast<uint64_t>(host.i64("run.seed"))),
      compute(ops::compute_type(host, "vit")) {
  if (eps == 0) eps = names == Names::kHuggingFace ? 1e-12 : 1e-6;
  ops::require_whole_heads(width, n_head, "model.width");
  if (side % patch != 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "an image of ", side, " pixels can't be cut into patches of ", patch,
              "; change model.image_size or model.patch");
}

}  // namespace vit
