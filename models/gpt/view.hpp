// SPDX-License-Identifier: Apache-2.0
//
// gpt/view.hpp: parameters and gradients of a unit's view as tensors and pointers.
#pragma once

#include <ATen/core/Tensor.h>
#include "../ops/matrix.hpp"
#include "ddh/kind/model.h"

namespace gpt {

inline const ddh_param_view& param(const ddh_unit_view& view, uint32_t i) { return *ddh_view_param(&view, i); }
inline float* grad(const ddh_param_view& p) { return static_cast<float*>(p.grad); }
inline bool adds(const ddh_param_view& p) { return p.grad_mode == DDH_GRAD_ADD; }

// (rows, columns) in the view's dtype
inline at::Tensor table(const ddh_param_view& p, int64_t rows, int64_t columns) {
  return ops::matrix(p.data, rows, columns, p.dtype);
}
// A short vector, converted to fp32 if it has 16 bits.
inline at::Tensor vector(const ddh_param_view& p) {
  return table(p, 1, static_cast<int64_t>(p.numel)).view(-1).to(at::kFloat);
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
