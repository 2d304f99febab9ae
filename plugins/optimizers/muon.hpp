// SPDX-License-Identifier: Apache-2.0
//
// plugins/optimizers/muon.hpp: muon's passes over the elements, for the CPU and as kernels (muon.cpp says what they
// compute).
#pragma once

#include "ddh/sdk/kernels/elementwise.hpp"

namespace muon DDH_HIDDEN {

// Updates the momentum and returns the direction: the momentum, or an interpolation by `ahead` between it and the
// gradient.
struct Momentum {
  static constexpr const char* kKernel = "muon_momentum";
  float weight, ahead;
  DDH_SIMD_INLINE float operator()(float, float g, float& m) const {
    m = m + weight * (g - m);
    return m + ahead * (g - m);
  }
};

struct Move {
  static constexpr const char* kKernel = "muon_move";
  float keep, step_size;
  DDH_SIMD_INLINE float operator()(float p, float d) const { return p * keep - step_size * d; }
};

}  // namespace DDH_HIDDEN
