// SPDX-License-Identifier: Apache-2.0
//
// plugins/optimizers/sgd.hpp: the update of sgd, for the CPU and for GPUs (sgd.cu).
#pragma once

#include "ddh/sdk/kernels/elementwise.hpp"
#include "kernel_image.hpp"

namespace sgd DDH_HIDDEN {

struct Plain {
  static constexpr const char* kKernel = "sgd_plain";
  float decay, lr;
  DDH_SIMD_INLINE float operator()(float p, float scaled) const { return p - lr * (scaled + decay * p); }
};
template <bool kNesterov, bool kFirst>
struct Momentum {
  static constexpr const char* kKernel =
      kNesterov ? (kFirst ? "sgd_nesterov_first" : "sgd_nesterov") : (kFirst ? "sgd_momentum_first" : "sgd_momentum");
  float decay, lr, momentum, weight;
  DDH_SIMD_INLINE float operator()(float p, float scaled, float& buffer) const {
    const float g = scaled + decay * p;
    buffer = kFirst ? g : momentum * buffer + weight * g;
    return p - lr * (kNesterov ? g + momentum * buffer : buffer);
  }
};

}  // namespace DDH_HIDDEN
