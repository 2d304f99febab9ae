// SPDX-License-Identifier: Apache-2.0
//
// Networks of plain convolutions and pools: a basic one, VGG (Simonyan and Zisserman 2015), and a ResNet of nine layers for
// small images.
#include <algorithm>
#include <cmath>

#include "networks.hpp"

namespace cnn {

// Convolutions 3 x 3 with ReLU and a pool of 2, then two dense layers. Batch norms are the option batch_norm's.
Net basic(const NetOptions& o) {
  Net net(o.image, o.ways);
  const double dropped = o.dropout_or(0.5);
  int i = 0;
  for (const int64_t width : o.widths) {
    const std::string number = std::to_string(++i);
    Unit& u = net.unit("conv" + number);
    u.conv("conv" + number, width, 3, {.padding = o.padding, .bias = !o.batch_norm});
    if (o.batch_norm) u.batch_norm("bn" + number);
    u.relu().max_pool(2);
  }
  net.unit("fc1").flatten().dropout(dropped).linear("fc1", o.hidden).relu();
  net.unit("fc2").dropout(dropped).linear("fc2", o.classes);
  return net;
}

Net vgg(const NetOptions& o) {
  // Convolutions of the five stages; the widths are 64, 128, 256, 512, 512.
  const bool norms = o.network.ends_with("_bn");
  const std::string depth = o.network.substr(3, 2);
  const std::vector<int> convs = depth == "11"   ? std::vector<int>{1, 1, 2, 2, 2}
                                 : depth == "13" ? std::vector<int>{2, 2, 2, 2, 2}
                                 : depth == "16" ? std::vector<int>{2, 2, 3, 3, 3}
                                                 : std::vector<int>{2, 2, 4, 4, 4};
  Net net(o.image, o.ways);
  int index = 0;  // among torchvision's features
  const auto feature = [&index] { return "features." + std::to_string(index); };
  for (size_t stage = 0; stage < convs.size(); ++stage) {
    Unit& u = net.unit("stage" + std::to_string(stage + 1));
    for (int i = 0; i < convs[stage]; ++i) {
      u.conv(feature(), std::min<int64_t>(512, int64_t{64} << stage), 3, {.padding = 1, .start = Start::kKaimingOut});
      ++index;
      if (norms) u.batch_norm(feature()), ++index;
      u.relu(), ++index;
    }
    u.max_pool(2), ++index;
  }
  freeze_trunk(net, 0, o);
  const double dropped = o.dropout_or(0.5);
  const ddh::ParamInit narrow{DDH_INIT_NORMAL, 0, 0.01};
  net.unit("classifier.0").average_pool(7).flatten().linear("classifier.0", 4096, narrow).relu().dropout(dropped);
  net.unit("classifier.3").linear("classifier.3", 4096, narrow).relu().dropout(dropped);
  net.unit("classifier.6").linear("classifier.6", o.classes, narrow);
  return net;
}

// After the DAWNBench entries for CIFAR-10 (Page 2018): stages of one convolution and a pool, two of them with a residual
// block, and a maximum over the remaining image.
Net resnet9(const NetOptions& o) {
  Net net(o.image, o.ways);
  const auto conv = [](Unit& u, const std::string& name, int64_t width) {
    u.conv(name + ".conv", width, 3, {.padding = 1, .bias = false, .start = Start::kKaimingOut});
    u.batch_norm(name + ".bn").relu();
  };
  conv(net.unit("prep"), "prep", o.width);
  for (int stage = 1; stage <= 3; ++stage) {
    const int64_t width = o.width << stage;
    const std::string name = "layer" + std::to_string(stage);
    Unit& u = net.unit(name);
    conv(u, name, width);
    u.max_pool(2);
    if (stage == 2) continue;
    net.unit(name + ".residual").residual(0, [&](Unit& body) {
      conv(body, name + ".res1", width);
      conv(body, name + ".res2", width);
    });
  }
  Unit& head = net.unit("head");
  head.max_pool(head.shape().height).flatten().dropout(o.dropout_or(0)).linear("linear", o.classes);
  return net;
}

}  // namespace cnn
