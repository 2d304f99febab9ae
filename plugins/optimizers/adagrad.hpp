// SPDX-License-Identifier: Apache-2.0
//
// plugins/optimizers/adagrad.hpp: the update of adagrad, for the CPU and for GPUs (adagrad.cu).
#pragma once

#include <cmath>

#include "ddh/sdk/kernels/elementwise.hpp"
#include "kernel_image.hpp"

namespace adagrad DDH_HIDDEN {

template <bool kFirst>
struct Formula {
  static constexpr const char* kKernel = kFirst ? "adagrad_first" : "adagrad_later";
  float decay, initial, eps, lr;
  DDH_SIMD_INLINE float operator()(float p, float scaled, float& sum) const {
    const float g = scaled + decay * p;
    sum = (kFirst ? initial : sum) + g * g;
    return p - lr * (g / (std::sqrt(sum) + eps));
  }
};

}  // namespace DDH_HIDDEN
