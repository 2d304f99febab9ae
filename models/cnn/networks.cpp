// SPDX-License-Identifier: Apache-2.0
#include "networks.hpp"

namespace cnn {

Net make_net(const NetOptions& options) {
  const std::string& name = options.network;
  if (name.starts_with("vgg")) return vgg(options);
  if (name == "mobilenet_v2") return mobilenet_v2(options);
  if (name.starts_with("mobilenet_v3")) return mobilenet_v3(options);
  if (name == "efficientnet_b0") return efficientnet_b0(options);
  if (name == "resnet9") return resnet9(options);
  if (name == "cnn_lstm") return cnn_lstm(options);
  if (name == "pretrained_cnn_lstm") return pretrained_cnn_lstm(options);
  if (name == "conv3d") return conv3d(options);
  if (name == "ensemble") return ensemble(options);
  if (name == "two_stream") return two_stream(options);
  return basic(options);
}

void freeze_trunk(Net& net, size_t first, const NetOptions& o) {
  if (!o.freeze_features) return;
  int64_t trained = o.unfrozen;
  for (size_t i = net.units().size(); i-- > first;) {
    Unit& u = *net.units()[i];
    u.n_frozen = u.params().size();
    while (trained > 0 && u.n_frozen > 0) {
      const bool is_convolution = u.params()[--u.n_frozen].shape.size() == 4;
      if (is_convolution) --trained;
    }
  }
  if (trained > 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "model.unfrozen=", o.unfrozen, " is more than the ", o.unfrozen - trained,
              " convolutions of a trunk of ", o.network, "; lower it, or set model.freeze=none and model.unfrozen=0");
}

}  // namespace cnn
