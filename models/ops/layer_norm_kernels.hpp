// SPDX-License-Identifier: Apache-2.0
//
// ops/layer_norm_kernels.hpp: layer norms (Ba et al. 2016) over rows in fp32. The same bits at every vector width, and for
// every division of the rows.
#pragma once

#include <cstdint>

namespace ops {

// (width), fp32. bias: nullptr if there is none.
struct LayerNormParameters {
  const float *weight, *bias;
};

// y = (x - mean) rstd weight + bias; x (rows, width); y in fp32, in bf16 as its bits (uint16_t), or in fp16 (Half); mean, rstd
// (rows).
template <class Element>
void layer_norm_rows(const float* x, const LayerNormParameters& of, int64_t rows, int64_t width, float eps, Element* y,
                     float* mean, float* rstd);

struct LayerNormBackwardRows {
  const float *dy, *x;       // (rows, width)
  const float *mean, *rstd;  // (rows)
  int64_t rows, width;
};
// dx (rows, width) = the gradient of x, plus `past_norm` (rows, width) where it is not nullptr. dx may be dy or `past_norm`.
void layer_norm_rows_backward(const LayerNormBackwardRows& in, const float* weight, const float* past_norm, float* dx);

}  // namespace ops
