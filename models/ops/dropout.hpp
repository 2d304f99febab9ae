// SPDX-License-Identifier: Apache-2.0
//
// ops/dropout.hpp: dropout at one place of a unit, and stochastic depth, which drops a branch for whole samples (Huang et
// al. 2016). Masks are ddh::Dropout's, so they depend neither on the number of ranks nor on the strategy.
#pragma once

#include <ATen/core/Tensor.h>

#include "ddh/sdk/torch/dropout.hpp"

namespace ops {

struct DDH_HIDDEN DropoutPlace {
  double probability = 0;  // 0: nothing is dropped
  ddh::DropoutKey key;
  [[nodiscard]] bool drops() const { return probability > 0; }
};

// x with dropout, in place; the first element of x is number `first` of the place's tensor. The backward is the same call.
inline at::Tensor dropout(const DropoutPlace& place, at::Tensor x, int64_t first = 0) {
  if (place.drops()) ddh::dropout_(ddh::Dropout(place.probability, place.key), x, first);
  return x;
}

// x (B T, C), in place: a sample's rows become 0, or are multiplied by 1 / (1 - probability). The backward is the same call.
inline at::Tensor drop_samples(const DropoutPlace& place, at::Tensor x, int64_t B) {
  if (!place.drops() || B == 0) return x;
  x.view({B, -1}).mul_(ddh::dropout_factors(ddh::Dropout(place.probability, place.key), {B, 1}, x));
  return x;
}

}  // namespace ops
