// SPDX-License-Identifier: Apache-2.0
//
// ops/losses.hpp: cross-entropy of a classifier against distributions, and what accuracy counts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ops {

// logits, targets (B, K) fp32; a row of targets sums to 1, or to the weight of the row. Returns the sum of the losses, fp64
// on the logits' device; `log_sum_exp` (B) is kept for the backward.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets, at::Tensor& log_sum_exp);
// Gradient of seed times that sum. (B, K)
at::Tensor cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& log_sum_exp,
                                  double seed);

// How many of the B labels are among the k largest logits of their row; of equal logits the first counts as larger.
int64_t count_among_largest(const at::Tensor& logits, const std::vector<int64_t>& labels, int64_t k);
// The same by operators, fp64 on the logits' device; labels (B).
at::Tensor counted_among_largest(const at::Tensor& logits, const at::Tensor& labels, int64_t k);
// For each of the K classes, how many rows have it as their largest logit and as their label, then how many have it as their
// largest logit: (2 K) fp64 on the logits' device. A row with NaN counts for no class.
at::Tensor counts_of_classes(const at::Tensor& logits, const at::Tensor& labels);

}  // namespace ops
