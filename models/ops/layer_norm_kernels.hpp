// SPDX-License-Identifier: Apache-2.0
//
// ops/layer_norm_kernels.hpp: layer norms (Ba et al. 2016) over rows in fp32, each in one pass over memory. The same bits at
// every vector width, and for every division of the rows.
#pragma once

#include <cstdint>

namespace ops {

// Parameters of the norm (width), fp32. bias: nullptr if there is none.
struct NormScalars {
  const float *weight, *bias;
};

// y = (x - mean) rstd weight + bias; x (rows, width); y in fp32, or bf16 as its bits; mean, rstd (rows).
template <class Element>
void layer_norm_rows(const float* x, const NormScalars& of, int64_t rows, int64_t width, float eps, Element* y,
                     float* mean, float* rstd);

struct LayerNormRows {
  const float *dy, *x;       // (rows, width)
  const float *mean, *rstd;  // (rows)
  int64_t rows, width;
};
// dx (rows, width) = the gradient of x, plus `add` (rows, width) where it is not nullptr. dx may be dy or `add`.
void layer_norm_rows_backward(const LayerNormRows& in, const float* weight, const float* add, float* dx);

}  // namespace ops
