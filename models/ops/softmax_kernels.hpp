// SPDX-License-Identifier: Apache-2.0
//
// ops/softmax_kernels.hpp: rows of a softmax in fp32. The same bits with AVX2 and AVX-512 (fused_kernel.hpp), and for every
// division of the rows.
#pragma once

#include <cstdint>

namespace ops {

// out[r] = log of the sum of exp(x[r][c]); x (rows, width), width at least 1. NaN where a row holds NaN or positive infinity,
// or nothing but negative infinity.
void log_sum_exp_rows(const float* x, int64_t rows, int64_t width, float* out);

// y[r][c] = exp(x[r][c] - log_sum_exp[r]) factor; y may be x. No x[r][c] may be larger than log_sum_exp[r] by 88.
void softmax_rows(const float* x, const float* log_sum_exp, int64_t rows, int64_t width, float factor, float* y);

}  // namespace ops
