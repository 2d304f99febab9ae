// SPDX-License-Identifier: Apache-2.0
//
// ops/attention_kernels.hpp: attention of one head in fp32 without dropout, forward and backward (the formulas are those of
// Dao et al. 2022). Blocks of 32 queries see all their keys at once, so no score is computed twice in the forward, and the
// backward computes them again. Products use fused multiply-adds: processors that have them give the same bits at every
// vector width.
#pragma once

#include <cstdint>

#include "ddh/sdk/kernels/simd.hpp"

namespace ops {

struct HeadShape {
  int64_t T, D;  // tokens, width of the head
  bool causal;
};

// Rows of a head at a distance of `stride` elements.
struct HeadRows {
  const float* data;
  int64_t stride;
};
struct HeadResult {
  float* data;
  int64_t stride;
};

// Elements of memory that a call needs.
int64_t attend_numel(const HeadShape& s);
int64_t attend_backward_numel(const HeadShape& s);

struct HeadGradients {
  HeadResult q, k, v;
};

struct HeadKernels {
  // out = softmax(q k^T / sqrt(D)) v (T, D), and the logarithm of the sum of exponentials of each row (T).
  void (*forward)(const HeadShape& s, HeadRows q, HeadRows k, HeadRows v, HeadResult out, float* log_sum_exp,
                  float* memory);
  void (*backward)(const HeadShape& s, HeadRows q, HeadRows k, HeadRows v, HeadRows out, HeadRows d_out,
                   const float* log_sum_exp, const HeadGradients& d, float* memory);
};
// Those of vectors that the processor must have.
HeadKernels head_kernels(ddh::SimdLevel level = ddh::simd_level());

}  // namespace ops
