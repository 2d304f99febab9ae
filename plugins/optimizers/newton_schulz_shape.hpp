// SPDX-License-Identifier: Apache-2.0
//
// plugins/optimizers/newton_schulz_shape.hpp: what the iteration of newton_schulz.hpp and its kernels for GPUs
// (newton_schulz_kernels.hpp) have in common: the layout of matrices, and the order in which the norm is summed.
#pragma once

#include <cmath>
#include <cstdint>

#include "ddh/sdk/kernels/simd.hpp"

namespace newton_schulz DDH_HIDDEN {

// Matrices are row-major; rows are `stride` elements apart, a multiple of kLanes, and end in zeros.
inline constexpr uint64_t kLanes = 16;
inline constexpr uint64_t kDepth = 256;  // depth of a panel: 16 KiB, which stay in the first-level cache

DDH_SIMD_INLINE constexpr uint64_t padded(uint64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

struct Coefficients {
  float a, b, c;
};

struct Shape {
  uint64_t rows, columns;
  [[nodiscard]] DDH_SIMD_INLINE uint64_t small() const { return rows < columns ? rows : columns; }
  [[nodiscard]] DDH_SIMD_INLINE uint64_t large() const { return rows < columns ? columns : rows; }
  // Where element (i, j) of the small x large matrix is in this one.
  [[nodiscard]] DDH_SIMD_INLINE uint64_t place(uint64_t i, uint64_t j) const {
    return rows > columns ? j * columns + i : i * columns + j;
  }
};

// Floats of scratch memory for a matrix: X and its successor, A and A^2, a panel.
inline constexpr uint64_t scratch_numel(uint64_t small, uint64_t large) {
  return 2 * small * padded(large) + 2 * small * padded(small) + kDepth * kLanes;
}

// The squares of the norm are summed in parts, each in several lanes.
inline constexpr uint64_t kLengthPart = 8192;  // elements
inline constexpr uint64_t kLengthLanes = 8;

// The sum of the lanes of a part.
DDH_SIMD_INLINE double total_of(const double* lanes) {
  double sum = 0;
  for (uint64_t lane = 0; lane < kLengthLanes; ++lane) sum += lanes[lane];
  return sum;
}
// What a matrix of this norm is multiplied with.
DDH_SIMD_INLINE float scale_of(double norm, double eps) { return static_cast<float>(1.0 / (norm < eps ? eps : norm)); }

}  // namespace DDH_HIDDEN
