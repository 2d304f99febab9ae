// SPDX-License-Identifier: Apache-2.0
//
// plugins/optimizers/lion.hpp: the update of lion, for the CPU and for GPUs (lion.cu).
#pragma once

#include "ddh/sdk/kernels/elementwise.hpp"
#include "kernel_image.hpp"

namespace lion DDH_HIDDEN {

struct Formula {
  static constexpr const char* kKernel = "lion_update";
  float keep, weight1, weight2, lr;
  DDH_SIMD_INLINE float operator()(float p, float g, float& m) const {
    const float away = g - m;
    const float c = m + weight1 * away;
    const float sign = c > 0.0f ? 1.0f : c < 0.0f ? -1.0f : c;
    m = m + weight2 * away;
    return p * keep - lr * sign;
  }
};

}  // namespace DDH_HIDDEN
