// SPDX-License-Identifier: Apache-2.0
//
// Networks of videos, and towers whose results are joined. model.freeze=features freezes the trunks of MobileNetV2 and
// EfficientNet-B0.
#include "networks.hpp"

namespace cnn {
namespace {

constexpr int64_t kTowerWidth = 256, kJoinedWidth = 512;  // of dense layers

// The mean over the image of a trunk's last unit, and a dense layer.
void tower_head(Net& net, const NetOptions& o, const std::string& name) {
  net.unit(name).average_pool(1).flatten().linear(name, kTowerWidth).relu().dropout(o.dropout_or(0.5));
}

void small_tower(Net& net, const NetOptions& o) {
  net.tower("conv1").conv("conv1", 64, 3, {}).relu().max_pool(2);
  net.unit("conv2").conv("conv2", 128, 3, {}).relu().max_pool(2);
  net.unit("conv3").conv("conv3", 256, 3, {}).relu();
  tower_head(net, o, "head_c");
}

void joined_head(Net& net, const NetOptions& o) {
  net.join("fc").linear("fc", kJoinedWidth).relu().dropout(o.dropout_or(0.5));
  net.unit("out").linear("out", o.classes);
}

// `first` gives the frames' features; then two LSTMs over the frames, and the classes of the last one.
void add_lstms(Net& net, Unit& first, const NetOptions& o) {
  first.flatten().lstm("lstm1", o.lstm.at(0), /*last_alone=*/false);
  net.unit("lstm2").lstm("lstm2", o.lstm.at(1), /*last_alone=*/true);
  net.unit("fc1").linear("fc1", o.hidden).relu().dropout(o.dropout_or(0.5));
  net.unit("fc2").linear("fc2", o.classes);
}

}  // namespace

Net cnn_lstm(const NetOptions& o) {
  Net net(o.image, o.ways);
  int i = 0;
  for (const int64_t width : o.widths) {
    const std::string name = "conv" + std::to_string(++i);
    net.unit(name).conv(name, width, 3, {.padding = o.padding}).relu().max_pool(2);
  }
  add_lstms(net, net.unit("lstm1"), o);
  return net;
}

// The names of the trunk are torchvision's, so a file of MobileNetV2 fills it.
Net pretrained_cnn_lstm(const NetOptions& o) {
  Net net(o.image, o.ways);
  mobilenet_v2_features(net, o, "features.");
  add_lstms(net, net.unit("lstm1").average_pool(1), o);
  return net;
}

// Convolutions 3 x 3 x 3 that keep the size, each with a pool of 2, over the frames too while there are two of them.
Net conv3d(const NetOptions& o) {
  Net net(o.image, o.ways);
  int i = 0;
  for (const int64_t width : o.widths) {
    const std::string name = "conv" + std::to_string(++i);
    Unit& u = net.unit(name);
    if (i == 1) u.volume();
    u.conv3d(name, width, 3).relu().max_pool3d();
  }
  const double dropped = o.dropout_or(0.5);
  net.unit("fc1").flatten_volume().linear("fc1", o.hidden).relu().dropout(dropped);
  net.unit("fc2").linear("fc2", (o.hidden + 1) / 2).relu().dropout(dropped);
  net.unit("fc3").linear("fc3", o.classes);
  return net;
}

Net ensemble(const NetOptions& o) {
  Net net(o.image, o.ways);
  mobilenet_v2_features(net, o, "mobilenet.");
  tower_head(net, o, "head_m");
  efficientnet_b0_features(net, o, "efficientnet.");
  tower_head(net, o, "head_e");
  small_tower(net, o);
  joined_head(net, o);
  return net;
}

Net two_stream(const NetOptions& o) {
  Net net(o.image, o.ways);
  mobilenet_v2_features(net, o, "mobilenet.");
  tower_head(net, o, "head_m");
  small_tower(net, o);
  joined_head(net, o);
  return net;
}

}  // namespace cnn
