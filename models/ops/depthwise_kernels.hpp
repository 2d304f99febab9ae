// SPDX-License-Identifier: Apache-2.0
//
// ops/depthwise_kernels.hpp: loops of depthwise convolutions over images with the channels of a pixel side by side, in fp32 or
// bf16 (as its bits). Each channel has a square filter of its own. Sums are fp32, in the order of the pixels, so their bits
// do not depend on vectors.
#pragma once

#include <cstdint>

namespace ops {

inline constexpr int64_t kMostTaps = 25;  // of a filter: 5 x 5

struct DepthwiseShape {
  int64_t samples, channels;
  int64_t height, width;          // of the input
  int64_t out_height, out_width;  // of the result
  int64_t kernel, stride, padding;
  [[nodiscard]] int64_t taps() const { return kernel * kernel; }
};

// x (samples, height, width, channels), w (taps, channels), y (samples, out_height, out_width, channels)
template <class Element>
void depthwise(const DepthwiseShape& s, const Element* x, const float* w, Element* y);
template <class Element>
void depthwise_backward_input(const DepthwiseShape& s, const Element* dy, const float* w, Element* dx);
template <class Element>
void depthwise_backward_weight(const DepthwiseShape& s, const Element* x, const Element* dy, float* dw);

}  // namespace ops
