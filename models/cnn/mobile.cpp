// SPDX-License-Identifier: Apache-2.0
//
// Networks of inverted residuals: MobileNetV2 (Sandler et al. 2018), MobileNetV3 (Howard et al. 2019), EfficientNet-B0 (Tan
// and Le 2019), with the names, widths and initial values of torchvision.
#include <algorithm>
#include <cmath>

#include "networks.hpp"

namespace cnn {
namespace {

// The differences between the networks, besides their tables.
struct Style {
  Unit& (Unit::*activation)();
  double eps = 1e-5, momentum = 0.1;  // of batch norms
};

const ddh::ParamInit kNarrow{DDH_INIT_NORMAL, 0, 0.01};  // of dense layers

// A convolution `name`.0 and its batch norm `name`.1; the padding keeps the size where the stride is 1.
Unit& conv_norm(Unit& u, const Style& style, const std::string& name, int64_t out, int64_t kernel, int64_t stride = 1,
                int64_t groups = 1) {
  u.conv(name + ".0", out, kernel,
         {.stride = stride, .padding = (kernel - 1) / 2, .groups = groups, .bias = false, .start = Start::kKaimingOut});
  return u.batch_norm(name + ".1", style.eps, style.momentum);
}

// For fine-tuning, in place of torchvision's head; EfficientNet's has a batch norm.
void dense_head(Net& net, const NetOptions& o, bool has_norm) {
  const double dropped = o.dropout_or(0.5);
  Unit& u = net.unit("fc1").average_pool(1).flatten();
  if (has_norm) u.batch_norm("bn").dropout(dropped);
  u.linear("fc1", o.hidden).relu().dropout(dropped);
  net.unit("fc2").linear("fc2", o.classes);
}

// Expansion, depthwise convolution, squeeze and excitation, projection.
struct Block {
  int64_t expanded, kernel, stride, out;
  int64_t squeezed = 0;  // 0: no squeeze and excitation
  Unit::Gate gate = Unit::Gate::kSigmoid;
  double drop = 0;  // stochastic depth
};

// `name`(i): the name of the i-th layer that the block has.
void inverted_residual(Unit& u, const Style& style, const Block& b, const std::function<std::string(int)>& name) {
  const int64_t in = u.shape().channels;
  const auto body = [&](Unit& branch) {
    int i = 0;
    if (b.expanded != in) (conv_norm(branch, style, name(i++), b.expanded, 1).*style.activation)();
    (conv_norm(branch, style, name(i++), b.expanded, b.kernel, b.stride, b.expanded).*style.activation)();
    if (b.squeezed > 0) branch.squeeze_excite(name(i++), b.squeezed, b.gate);
    conv_norm(branch, style, name(i), b.out, 1);
  };
  if (b.stride == 1 && b.out == in) {
    u.residual(b.drop, body);
  } else {
    body(u);
  }
}

}  // namespace

int64_t divisible_by_8(double channels) {
  const int64_t rounded = std::max<int64_t>(8, static_cast<int64_t>(channels + 4) / 8 * 8);
  return static_cast<double>(rounded) < 0.9 * channels ? rounded + 8 : rounded;
}

void mobilenet_v2_features(Net& net, const NetOptions& o, const std::string& prefix) {
  const size_t first = net.units().size();
  const Style style{&Unit::relu6, 1e-5, 0.1};
  // Expansion, width, blocks, stride of the first.
  constexpr int64_t kStages[][4] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                    {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  conv_norm(net.tower(prefix + "0"), style, prefix + "0", 32, 3, o.stem()).relu6();
  int index = 1;
  for (const auto& [expansion, width, blocks, stride] : kStages) {
    for (int64_t i = 0; i < blocks; ++i, ++index) {
      const std::string name = prefix + std::to_string(index);
      Unit& u = net.unit(name);
      const int64_t expanded = u.shape().channels * expansion;
      const int64_t first_stride = i == 0 ? stride : 1;
      const auto layer = [&](int n) { return name + ".conv." + std::to_string(n); };
      const auto body = [&](Unit& b) {
        int n = 0;
        if (expansion != 1) conv_norm(b, style, layer(n++), expanded, 1).relu6();
        conv_norm(b, style, layer(n++), expanded, 3, first_stride, expanded).relu6();
        // The projection and its norm are two entries of torchvision's list, where the others are one.
        b.conv(layer(n), width, 1, {.bias = false, .start = Start::kKaimingOut}).batch_norm(layer(n + 1));
      };
      if (first_stride == 1 && u.shape().channels == width) {
        u.residual(0, body);
      } else {
        body(u);
      }
    }
  }
  conv_norm(net.unit(prefix + "18"), style, prefix + "18", 1280, 1).relu6();
  freeze_trunk(net, first, o);
}

Net mobilenet_v2(const NetOptions& o) {
  Net net(o.image, o.ways);
  mobilenet_v2_features(net, o, "features.");
  if (o.dense_head) {
    dense_head(net, o, /*has_norm=*/false);
    return net;
  }
  net.unit("classifier")
      .average_pool(1)
      .flatten()
      .dropout(o.dropout_or(0.2))
      .linear("classifier.1", o.classes, kNarrow);
  return net;
}

Net mobilenet_v3(const NetOptions& o) {
  struct Row {
    int64_t kernel, expanded, out;
    bool squeezes, hard_swish;
    int64_t stride;
  };
  static const std::vector<Row> kSmall = {
      {3, 16, 16, true, false, 2}, {3, 72, 24, false, false, 2}, {3, 88, 24, false, false, 1},
      {5, 96, 40, true, true, 2},  {5, 240, 40, true, true, 1},  {5, 240, 40, true, true, 1},
      {5, 120, 48, true, true, 1}, {5, 144, 48, true, true, 1},  {5, 288, 96, true, true, 2},
      {5, 576, 96, true, true, 1}, {5, 576, 96, true, true, 1}};
  static const std::vector<Row> kLarge = {
      {3, 16, 16, false, false, 1}, {3, 64, 24, false, false, 2}, {3, 72, 24, false, false, 1},
      {5, 72, 40, true, false, 2},  {5, 120, 40, true, false, 1}, {5, 120, 40, true, false, 1},
      {3, 240, 80, false, true, 2}, {3, 200, 80, false, true, 1}, {3, 184, 80, false, true, 1},
      {3, 184, 80, false, true, 1}, {3, 480, 112, true, true, 1}, {3, 672, 112, true, true, 1},
      {5, 672, 160, true, true, 2}, {5, 960, 160, true, true, 1}, {5, 960, 160, true, true, 1}};
  const bool is_small = o.network == "mobilenet_v3_small";
  const Style hard{&Unit::hard_swish, 1e-3, 0.01}, soft{&Unit::relu, 1e-3, 0.01};
  Net net(o.image, o.ways);
  conv_norm(net.unit("features.0"), hard, "features.0", 16, 3, o.stem()).hard_swish();
  int index = 1;
  for (const Row& row : is_small ? kSmall : kLarge) {
    const std::string prefix = "features." + std::to_string(index++);
    const int64_t squeezed = row.squeezes ? divisible_by_8(static_cast<double>(row.expanded) / 4) : 0;
    const Block block{row.expanded, row.kernel, row.stride, row.out, squeezed, Unit::Gate::kHardSigmoid};
    inverted_residual(net.unit(prefix), row.hard_swish ? hard : soft, block,
                      [&](int i) { return prefix + ".block." + std::to_string(i); });
  }
  const std::string last = "features." + std::to_string(index);
  conv_norm(net.unit(last), hard, last, is_small ? 576 : 960, 1).hard_swish();
  freeze_trunk(net, 0, o);
  if (o.dense_head) {
    dense_head(net, o, /*has_norm=*/false);
    return net;
  }
  Unit& dense = net.unit("classifier.0");
  dense.average_pool(1).flatten().linear("classifier.0", is_small ? 1024 : 1280, kNarrow).hard_swish();
  net.unit("classifier.3").dropout(o.dropout_or(0.2)).linear("classifier.3", o.classes, kNarrow);
  return net;
}

void efficientnet_b0_features(Net& net, const NetOptions& o, const std::string& prefix) {
  const size_t first = net.units().size();
  const Style style{&Unit::silu, 1e-5, 0.1};
  // Expansion, kernel, stride of the first block, width, blocks.
  constexpr int64_t kStages[][5] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
                                    {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};
  constexpr double kBlocks = 16;
  const double last_drop = o.stochastic_depth >= 0 ? o.stochastic_depth : 0.2;
  conv_norm(net.tower(prefix + "0"), style, prefix + "0", 32, 3, o.stem()).silu();
  int block_index = 0, stage = 1;
  for (const auto& [expansion, kernel, stride, width, blocks] : kStages) {
    for (int64_t i = 0; i < blocks; ++i) {
      const std::string name = prefix + std::to_string(stage) + "." + std::to_string(i);
      Unit& u = net.unit(name);
      const int64_t in = u.shape().channels;
      const Block block{in * expansion,
                        kernel,
                        i == 0 ? stride : 1,
                        width,
                        std::max<int64_t>(1, in / 4),
                        Unit::Gate::kSigmoid,
                        last_drop * block_index++ / kBlocks};
      inverted_residual(u, style, block, [&](int n) { return name + ".block." + std::to_string(n); });
    }
    ++stage;
  }
  conv_norm(net.unit(prefix + "8"), style, prefix + "8", 1280, 1).silu();
  freeze_trunk(net, first, o);
}

Net efficientnet_b0(const NetOptions& o) {
  Net net(o.image, o.ways);
  efficientnet_b0_features(net, o, "features.");
  if (o.dense_head) {
    dense_head(net, o, /*has_norm=*/true);
    return net;
  }
  const double bound = 1 / std::sqrt(static_cast<double>(o.classes));
  net.unit("classifier")
      .average_pool(1)
      .flatten()
      .dropout(o.dropout_or(0.2))
      .linear("classifier.1", o.classes, ddh::ParamInit{DDH_INIT_UNIFORM, -bound, bound});
  return net;
}

}  // namespace cnn
