// SPDX-License-Identifier: Apache-2.0
//
// cnn/networks.hpp: the networks by name, and the options that change them.
#pragma once

#include <string>
#include <vector>

#include "net.hpp"

namespace cnn {

// Defaults are the schema's.
struct NetOptions {
  std::string network;  // "basic", "vgg16", "mobilenet_v2", ...
  Shape image;
  int64_t classes = 0;
  Ways ways;
  double dropout = -1, stochastic_depth = -1;  // below 0: the network's own
  int64_t stem_stride = 0;                     // of the first convolution of MobileNets and EfficientNet; 0: 2
  bool freeze_features = false;                // the trunk is not trained
  int64_t unfrozen = 0;                        // but for its last convolutions, with their batch norms
  bool dense_head = false;                     // of MobileNets and EfficientNet: a dense layer before the classes
  std::vector<int64_t> lstm = {256, 128};      // hidden widths of cnn_lstm's two
  int64_t hidden = 512;                        // width of the first dense layer where the network leaves it open
  int64_t width = 64;                          // channels of the first convolution of resnet9
  // Of basic, cnn_lstm and conv3d.
  std::vector<int64_t> widths = {32, 64, 128, 128};
  int64_t padding = 0;
  bool batch_norm = false;

  [[nodiscard]] double dropout_or(double own) const { return dropout >= 0 ? dropout : own; }
  [[nodiscard]] int64_t stem() const { return stem_stride > 0 ? stem_stride : 2; }
};

// Throws ddh::Error if the image is too small.
Net make_net(const NetOptions& options);

// The networks. Names of parameters are torchvision's if it has the network.
Net basic(const NetOptions& o);  // convolutions with pools, two dense layers
Net vgg(const NetOptions& o);    // vgg11, vgg13, vgg16, vgg19, each with _bn too
Net mobilenet_v2(const NetOptions& o);
Net mobilenet_v3(const NetOptions& o);  // mobilenet_v3_small, mobilenet_v3_large
Net efficientnet_b0(const NetOptions& o);
Net resnet9(const NetOptions& o);
Net cnn_lstm(const NetOptions& o);             // convolutions of each frame, two LSTMs over the frames
Net pretrained_cnn_lstm(const NetOptions& o);  // the same over the trunk of MobileNetV2
Net conv3d(const NetOptions& o);               // convolutions over frames and image at once
Net ensemble(const NetOptions& o);             // MobileNetV2, EfficientNet-B0 and a small network side by side
Net two_stream(const NetOptions& o);           // MobileNetV2 and a small network side by side

// The trunks, as further units: `prefix` takes the place of "features.".
void mobilenet_v2_features(Net& net, const NetOptions& o, const std::string& prefix);
void efficientnet_b0_features(Net& net, const NetOptions& o, const std::string& prefix);

// Freezes a trunk, which is the units from `first` on, as the options say.
void freeze_trunk(Net& net, size_t first, const NetOptions& o);

// The largest multiple of 8 near `channels` that is not below nine tenths of it: how MobileNets round widths.
int64_t divisible_by_8(double channels);

}  // namespace cnn
