// SPDX-License-Identifier: Apache-2.0
//
// ops/transpose.hpp: the transpose of 4 x 4 elements in registers. A loop that stores down a column instead becomes scatters
// where the processor has them, which take several cycles for an element.
#pragma once

#include <cstdint>

#include "ddh/sdk/kernels/simd.hpp"

namespace ops {

using FourFloats = float __attribute__((vector_size(16), aligned(4), may_alias));

// v[i][j] and v[j][i] change places.
DDH_SIMD_INLINE void transpose_4x4(FourFloats (&v)[4]) {
  const FourFloats a0 = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5),
                   a1 = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
  const FourFloats a2 = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5),
                   a3 = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
  v[0] = __builtin_shufflevector(a0, a2, 0, 1, 4, 5);
  v[1] = __builtin_shufflevector(a0, a2, 2, 3, 6, 7);
  v[2] = __builtin_shufflevector(a1, a3, 0, 1, 4, 5);
  v[3] = __builtin_shufflevector(a1, a3, 2, 3, 6, 7);
}

}  // namespace ops
