// SPDX-License-Identifier: Apache-2.0
//
// cnn/config.hpp: section model of the convolutional networks.
#pragma once

#include "ddh/sdk/plugin.hpp"
#include "networks.hpp"

namespace cnn {

extern const char* const kSchema;  // JSON Schema of section model

// Of a video; 0: the network takes images.
int64_t frames_of(const ddh::Host& host);
// The smallest images that the network basic takes, with these widths and this padding; 0: another network.
int64_t least_side(const ddh::Host& host);
// Throws ddh::Error.
NetOptions net_options(const ddh::Host& host, Shape image, int64_t classes, Ways ways = {});

}  // namespace cnn
