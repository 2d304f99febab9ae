// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/dropout.hpp: dropout with counter-based random numbers on tensors; elements are counted in row-major
// order.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "ddh/sdk/dropout.hpp"
#include "ddh/sdk/torch/pieces.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// In place, on a contiguous fp32 tensor whose first element has the counter `first`. For models that write gradients
// themselves: the backward is the same call.
inline void dropout_(const Dropout& dropout, at::Tensor& x, int64_t first = 0) {
  auto* data = x.mutable_data_ptr<float>();
  for_ranges(x.numel(), [&](int64_t at, int64_t n) {
    dropout.apply(data + at, static_cast<uint64_t>(first + at), static_cast<uint64_t>(n));
  });
}

// For autograd: returns x times a mask of its dtype.
inline at::Tensor dropout(const Dropout& dropout, const at::Tensor& x) {
  at::Tensor factors = at::empty(x.sizes(), at::kFloat);
  auto* data = factors.mutable_data_ptr<float>();
  for_ranges(x.numel(), [&](int64_t at, int64_t n) {
    dropout.fill(data + at, static_cast<uint64_t>(at), static_cast<uint64_t>(n));
  });
  return x.mul(factors.to(x.options()));
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
