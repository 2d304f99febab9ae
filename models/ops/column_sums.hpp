// SPDX-License-Identifier: Apache-2.0
//
// ops/column_sums.hpp: sums over the rows of a matrix, for gradients of biases and layer norms. ATen splits some of
// these by the number of threads. Here one thread sums each column: runs of 64 rows in order, then the runs in order.
#pragma once

#include <cstdint>

#include "layer_norm_kernels.hpp"

namespace ops {

// out[c] = sum of x[r][c]; x (rows, columns).
void column_sums(const float* x, int64_t rows, int64_t columns, float* out);

// Gradients of a layer norm's weight and bias (width): d_weight[c] = sum of dy[r][c] (x[r][c] - mean[r]) rstd[r],
// d_bias[c] = sum of dy[r][c]. d_bias may be nullptr.
void layer_norm_weight_backward(const LayerNormBackwardRows& in, float* d_weight, float* d_bias);

}  // namespace ops
