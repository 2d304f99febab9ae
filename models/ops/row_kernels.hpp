// SPDX-License-Identifier: Apache-2.0
//
// ops/row_kernels.hpp: loops over fp32 rows of a language model: root mean square norms and rotary positions. A sum over a
// row has 16 parts that are added in a fixed order, so its bits do not depend on the processor's vectors.
#pragma once

#include <cstdint>

namespace ops {

// y = x rstd weight with rstd = 1 / sqrt(mean(x^2) + eps); x and y (rows, width), weight (width), rstd (rows).
void rms_norm_rows(const float* x, const float* weight, int64_t rows, int64_t width, double eps, float* y, float* rstd);
// dx from dy; the weight is frozen.
void rms_norm_rows_backward(const float* x, const float* weight, const float* rstd, const float* dy, int64_t rows,
                            int64_t width, float* dx);

// What a rotation turns: x (samples, tokens, heads, width), by cos and sin (tokens, width). Elements j and j + width / 2 are
// a pair.
struct RotatedRows {
  int64_t samples, tokens, heads, width;
};
void rotate_rows(const RotatedRows& s, const float* x, const float* cos, const float* sin, float* y);
void rotate_rows_backward(const RotatedRows& s, const float* dy, const float* cos, const float* sin, float* dx);

}  // namespace ops
