// SPDX-License-Identifier: Apache-2.0
//
// Networks that are composed of others: a network over the frames of a video, and towers whose results are joined.
// model.freeze=features freezes the towers of MobileNetV2 and EfficientNet-B0.
#include "networks.hpp"

namespace cnn {
namespace {

constexpr int64_t kTowerWidth = 256, kJoinedWidth = 512;  // of dense layers

// The mean over the image of a trunk's last unit, and a dense layer.
void dense_head(Net& net, const NetOptions& o, const std::string& name) {
  net.unit(name).average_pool(1).flatten().linear(name, kTowerWidth).relu().dropout(o.dropout_or(0.5));
}

void small_tower(Net& net, const NetOptions& o) {
  net.tower("conv1").conv("conv1", 64, 3, {}).relu().max_pool(2);
  net.unit("conv2").conv("conv2", 128, 3, {}).relu().max_pool(2);
  net.unit("conv3").conv("conv3", 256, 3, {}).relu();
  dense_head(net, o, "head_c");
}

void joined_head(Net& net, const NetOptions& o) {
  net.join("fc").linear("fc", kJoinedWidth).relu().dropout(o.dropout_or(0.5));
  net.unit("out").linear("out", o.classes);
}

}  // namespace

Net cnn_lstm(const NetOptions& o) {
  Net net(o.image);
  int i = 0;
  for (const int64_t width : o.widths) {
    const std::string name = "conv" + std::to_string(++i);
    net.unit(name).conv(name, width, 3, {.padding = o.padding}).relu().max_pool(2);
  }
  net.unit("lstm1").flatten().lstm("lstm1", o.lstm.at(0), /*last_alone=*/false);
  net.unit("lstm2").lstm("lstm2", o.lstm.at(1), /*last_alone=*/true);
  net.unit("fc1").linear("fc1", o.hidden).relu().dropout(o.dropout_or(0.5));
  net.unit("fc2").linear("fc2", o.classes);
  return net;
}

Net ensemble(const NetOptions& o) {
  Net net(o.image);
  mobilenet_v2_features(net, o, "mobilenet.", o.freeze_features);
  dense_head(net, o, "head_m");
  efficientnet_b0_features(net, o, "efficientnet.", o.freeze_features);
  dense_head(net, o, "head_e");
  small_tower(net, o);
  joined_head(net, o);
  return net;
}

Net two_stream(const NetOptions& o) {
  Net net(o.image);
  mobilenet_v2_features(net, o, "mobilenet.", o.freeze_features);
  dense_head(net, o, "head_m");
  small_tower(net, o);
  joined_head(net, o);
  return net;
}

}  // namespace cnn
