// SPDX-License-Identifier: Apache-2.0
//
// gpt/view.hpp: parameters and gradients of a unit's view as tensors and pointers.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include "ddh/kind/model.h"

namespace gpt {

inline const ddh_param_view& param(const ddh_unit_view& view, uint32_t i) { return *ddh_view_param(&view, i); }
inline const float* data(const ddh_param_view& p) { return static_cast<const float*>(p.data); }
inline float* grad(const ddh_param_view& p) { return static_cast<float*>(p.grad); }
inline bool adds(const ddh_param_view& p) { return p.grad_mode == DDH_GRAD_ADD; }

inline at::Tensor vector(const ddh_param_view& p) {
  return at::from_blob(p.data, {static_cast<int64_t>(p.numel)}, at::kFloat);
}

// Stores or adds a complete gradient.
inline void give(const ddh_param_view& p, const at::Tensor& gradient) {
  if (p.grad == nullptr) return;
  at::Tensor to = at::from_blob(p.grad, gradient.sizes(), at::kFloat);
  if (adds(p)) {
    to.add_(gradient);
  } else {
    to.copy_(gradient);
  }
}

}  // namespace gpt
