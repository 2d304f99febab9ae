// SPDX-License-Identifier: Apache-2.0
#include "config.hpp"

#include <algorithm>
#include <array>

#include "../images/loader.hpp"
#include "../ops/model_products.hpp"
#include "ddh/sdk/torch/device.hpp"

namespace cnn {
namespace {

constexpr size_t kMostWidths = 8;
constexpr int64_t kDefaultFrames = 5;

constexpr ddh::Option kOwnOptions[] = {
    {"network", "string", R"("basic")",
     R"("enum": ["basic", "vgg11", "vgg13", "vgg16", "vgg19", "vgg11_bn", "vgg13_bn", "vgg16_bn", "vgg19_bn",)"
     R"( "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0", "resnet9",)"
     R"( "cnn_lstm", "pretrained_cnn_lstm", "conv3d", "ensemble", "two_stream"])",
     "the network; names and initial values are torchvision's if it has the network"},
    {"widths", "array", "[32, 64, 128, 128]",
     R"("items": {"type": "integer", "minimum": 1}, "minItems": 1, "maxItems": 8)",
     "channels of the convolutions of basic, cnn_lstm and conv3d, each followed by a pool of 2"},
    {"width", "integer", "64", R"("minimum": 1, "maximum": 4096)",
     "channels of the first convolution of resnet9; its three stages have 2, 4 and 8 times as many"},
    {"lstm", "array", "[256, 128]", R"("items": {"type": "integer", "minimum": 1}, "minItems": 2, "maxItems": 2)",
     "widths of the two LSTMs of cnn_lstm and pretrained_cnn_lstm"},
    {"frames", "integer", "5", R"("minimum": 1, "maximum": 1024)",
     "number of frames of a video, for cnn_lstm, pretrained_cnn_lstm and conv3d"},
    {"hidden", "integer", "512", R"("minimum": 1, "maximum": 1048576)",
     "width of the first dense layer of basic, conv3d, both cnn_lstm and head=dense"},
    {"head", "string", R"("plain")", R"("enum": ["plain", "dense"])",
     "head of MobileNets and EfficientNet; plain: torchvision's; dense: one more dense layer with ReLU and dropout, "
     "for EfficientNet after a batch norm and dropout"},
    {"padding", "integer", "0", R"("minimum": 0, "maximum": 16, "x-unit": "pixels")",
     "padding of the convolutions of basic and cnn_lstm; 1 keeps the size of the image"},
    {"batch_norm", "boolean", "false", "", "batch norms after the convolutions of basic, which then have no biases"},
    {"sync_batch_norm", "boolean", "false", "",
     "batch norms use the statistics of a micro-batch of all ranks together, not of each rank alone"},
    {"channels_last", "boolean", "true", "",
     "true: tensors hold the channels of a pixel side by side (NHWC), as torch.channels_last does, which is faster; "
     "false: the pixels of a channel side by side (NCHW), as conv3d always does"},
    {"dropout", "number", "-1", R"("minimum": -1, "maximum": 0.9)",
     "dropout before dense layers; -1: 0 for resnet9, 0.2 for plain heads of MobileNets and EfficientNet, else 0.5"},
    {"stochastic_depth", "number", "-1", R"("minimum": -1, "maximum": 0.9)",
     "stochastic depth of efficientnet_b0 and ensemble: block i of 16, counted from 0, is dropped with i/16 of this "
     "probability; -1: 0.2"},
    {"stem_stride", "integer", "0", R"("minimum": 0, "maximum": 2)",
     "stride of the first convolution of MobileNets and EfficientNet; use 1 for images of 32 pixels; 0 means 2"},
    {"freeze", "string", R"("none")", R"("enum": ["none", "features"])",
     "features: trunks of VGG, MobileNets and EfficientNet, also those of towers and of frames, and their batch norms "
     "do not change"},
    {"unfrozen", "integer", "0", R"("minimum": 0, "maximum": 1024)",
     "with freeze=features: the last convolutions of a trunk that are trained all the same, with their batch norms"},
    ops::kMatmulOption,
    ddh::kOperatorsOption,
};
constexpr auto kAllOptions = ddh::joined(kOwnOptions, images::kOptions);

std::vector<int64_t> integers(const ddh::Host& host, const char* key) {
  std::array<double, kMostWidths> values{};
  uint32_t n = 0;
  ddh::call(host.config->get_f64s, host.h, key, values.data(), static_cast<uint32_t>(values.size()), &n);
  std::vector<int64_t> out;
  for (uint32_t i = 0; i < n; ++i) out.push_back(static_cast<int64_t>(values.at(i)));
  return out;
}

// Options that the network does not read must have their defaults.
void refuse_unread(const NetOptions& o, int64_t frames) {
  struct Reads {
    const char* option;
    bool is_changed;
    std::vector<std::string_view> networks;  // how the names of those that read it begin
  };
  const NetOptions own;
  const std::vector<Reads> table = {
      {"widths", o.widths != own.widths, {"basic", "cnn_lstm", "conv3d"}},
      {"width", o.width != own.width, {"resnet9"}},
      {"lstm", o.lstm != own.lstm, {"cnn_lstm", "pretrained_cnn_lstm"}},
      {"frames", frames != kDefaultFrames, {"cnn_lstm", "pretrained_cnn_lstm", "conv3d"}},
      {"head", o.dense_head, {"mobilenet", "efficientnet_b0"}},
      {"hidden", o.hidden != own.hidden && !o.dense_head, {"basic", "cnn_lstm", "pretrained_cnn_lstm", "conv3d"}},
      {"padding", o.padding != own.padding, {"basic", "cnn_lstm"}},
      {"batch_norm", o.batch_norm, {"basic"}},
      {"stochastic_depth", o.stochastic_depth > 0, {"efficientnet_b0", "ensemble"}},
      {"stem_stride", o.stem_stride > 0, {"mobilenet", "efficientnet_b0", "pretrained", "ensemble", "two_stream"}},
      {"freeze", o.freeze_features, {"vgg", "mobilenet", "efficientnet_b0", "pretrained", "ensemble", "two_stream"}},
  };
  for (const auto& [option, is_changed, networks] : table) {
    const bool reads = std::any_of(networks.begin(), networks.end(),
                                   [&](std::string_view begin) { return o.network.starts_with(begin); });
    if (is_changed && !reads)
      ddh::fail(DDH_INVALID_ARGUMENT, "model.", option, " is given, but the network ", o.network, " has no use for it",
                "; leave it out");
  }
}

}  // namespace

const char* const kSchema = ddh::kSchemaOf<kAllOptions>;

int64_t frames_of(const ddh::Host& host) {
  const std::string network = host.text("model.network");
  return network.ends_with("cnn_lstm") || network == "conv3d" ? host.i64("model.frames") : 0;
}

int64_t least_side(const ddh::Host& host) {
  if (host.text("model.network") != "basic") return 0;
  const int64_t padding = host.i64("model.padding");
  int64_t side = 1;  // after the last pool; each convolution takes 2 pixels off
  for (size_t i = integers(host, "model.widths").size(); i > 0; --i)
    side = std::max<int64_t>(2 * side + 2 - 2 * padding, 1);
  return side;
}

NetOptions net_options(const ddh::Host& host, Shape image, int64_t classes, Ways ways) {
  NetOptions o;
  o.ways = ways;
  o.network = host.text("model.network");
  o.image = image;
  o.classes = classes;
  o.dropout = host.f64("model.dropout");
  o.stochastic_depth = host.f64("model.stochastic_depth");
  o.stem_stride = host.i64("model.stem_stride");
  o.freeze_features = host.text("model.freeze") == "features";
  o.unfrozen = host.i64("model.unfrozen");
  o.dense_head = host.text("model.head") == "dense";
  o.widths = integers(host, "model.widths");
  o.width = host.i64("model.width");
  o.hidden = host.i64("model.hidden");
  o.padding = host.i64("model.padding");
  o.batch_norm = host.flag("model.batch_norm");
  o.lstm = integers(host, "model.lstm");
  refuse_unread(o, host.i64("model.frames"));
  if (o.unfrozen > 0 && !o.freeze_features)
    ddh::fail(DDH_INVALID_ARGUMENT, "model.unfrozen=", o.unfrozen,
              " leaves convolutions of a frozen trunk to be trained, but none is frozen; set model.freeze=features");
  return o;
}

}  // namespace cnn
