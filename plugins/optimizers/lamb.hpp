// SPDX-License-Identifier: Apache-2.0
//
// plugins/optimizers/lamb.hpp: the two passes of lamb over the elements, for the CPU and as kernels (lamb.cpp says what
// they compute).
#pragma once

#include <cmath>

#include "ddh/sdk/kernels/elementwise.hpp"
#include "kernel_image.hpp"

namespace lamb DDH_HIDDEN {

// The scalars of one parameter's update.
struct Scalars {
  float decay;
  float beta2;
  float weight1;         // 1 - beta1
  float weight2;         // 1 - beta2
  float inv_bias1;       // 1 / (1 - beta1^t)
  float inv_sqrt_bias2;  // 1 / sqrt(1 - beta2^t)
  float eps;
  float step_size;  // lr * trust; only in update
};

DDH_SIMD_INLINE float direction(float p, float m, float v, const Scalars& s) {
  return (m * s.inv_bias1) / (std::sqrt(v) * s.inv_sqrt_bias2 + s.eps) + s.decay * p;
}

// Updates the moments, and returns the parameter and its direction.
struct Prepare {
  static constexpr const char* kKernel = "lamb_prepare";
  Scalars s;
  DDH_SIMD_INLINE ddh::Shown operator()(float p, float g, float& m, float& v) const {
    m = m + s.weight1 * (g - m);
    v = s.beta2 * v + (s.weight2 * g) * g;
    return {p, direction(p, m, v, s)};
  }
};
struct Update {
  static constexpr const char* kKernel = "lamb_update";
  Scalars s;
  DDH_SIMD_INLINE float operator()(float p, float m, float v) const { return p - s.step_size * direction(p, m, v, s); }
};

}  // namespace DDH_HIDDEN
