// SPDX-License-Identifier: Apache-2.0
//
// ops/norm_kernels.hpp: loops of batch norms over rows of channels, x (rows, channels): images with the channels of a pixel
// side by side. Rows are fp32 or bf16; statistics and sums are computed in fp32 over 64 rows, and in fp64 beyond.
#pragma once

#include <cstdint>

namespace ops {

// What follows the norm in the same pass.
enum class Activation : int32_t { kNone, kRelu, kRelu6, kHardSwish, kSilu };

// The scalars of each channel (channels): y = activation((x - mean) * scale + shift).
struct ChannelScalars {
  const float *mean, *scale, *shift;
};

// Mean and the sum of squared distances from it, of each channel (channels).
template <class Element>
void channel_statistics(const Element* x, int64_t rows, int64_t channels, double* mean, double* squares);

template <class Element>
void normalize(const Element* x, Element* y, int64_t rows, int64_t channels, const ChannelScalars& of,
               Activation activation);

// With g = dy * activation'(...): the sums of g and of g (x - mean) of each channel (channels).
template <class Element>
void normalize_backward_sums(const Element* x, const Element* dy, int64_t rows, int64_t channels,
                             const ChannelScalars& of, Activation activation, double* sums, double* products);

// dx = (g - mean_g - (x - mean) * slope) * scale; mean_g and slope (channels).
template <class Element>
void normalize_backward(const Element* x, const Element* dy, Element* dx, int64_t rows, int64_t channels,
                        const ChannelScalars& of, Activation activation, const float* mean_g, const float* slope);

}  // namespace ops
