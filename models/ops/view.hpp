// SPDX-License-Identifier: Apache-2.0
//
// ops/view.hpp: parameters and gradients of a unit's view as tensors and pointers.
#pragma once

#include <ATen/core/Tensor.h>

#include "ddh/kind/model.h"
#include "ddh/sdk/plugin.hpp"
#include "matrix.hpp"

namespace ops {

inline const ddh_param_view& param(const ddh_unit_view& view, uint32_t i) { return *ddh_view_param(&view, i); }
inline float* grad(const ddh_param_view& p) { return static_cast<float*>(p.grad); }
inline bool adds(const ddh_param_view& p) { return p.grad_mode == DDH_GRAD_ADD; }

// (rows, columns) in the view's dtype; `device`: where its memory is
inline at::Tensor table(const ddh_param_view& p, int64_t rows, int64_t columns, at::Device device) {
  return matrix(p.data, rows, columns, p.dtype, 0, device);
}
// A short vector, converted to fp32 if it has 16 bits.
inline at::Tensor vector(const ddh_param_view& p, at::Device device) {
  return table(p, 1, static_cast<int64_t>(p.numel), device).view(-1).to(at::kFloat);
}
// The whole gradient, (numel) fp32
inline at::Tensor gradient_of(const ddh_param_view& p, at::Device device) {
  return matrix(p.grad, 1, static_cast<int64_t>(p.numel), DDH_F32, 0, device).view(-1);
}

// Stores or adds a complete gradient, or some elements of it. grad_mode: DDH_GRAD_WRITE or DDH_GRAD_ADD
inline void give(at::Tensor to, const at::Tensor& gradient, int32_t grad_mode) {
  if (grad_mode == DDH_GRAD_ADD) {
    to.add_(gradient);
  } else {
    to.copy_(gradient);
  }
}
inline void give(const ddh_param_view& p, const at::Tensor& gradient) {
  if (p.grad == nullptr) return;
  give(gradient_of(p, gradient.device()).view(gradient.sizes()), gradient, p.grad_mode);
}

// For a batch without samples: sets gradients of mode DDH_GRAD_WRITE to zero, and leaves the others.
inline void give_zeros(const ddh_unit_view& view, at::Device device) {
  for (uint32_t i = 0; i < view.n_params; ++i) {
    const ddh_param_view& p = param(view, i);
    if (p.grad != nullptr && !adds(p)) gradient_of(p, device).zero_();
  }
}

// Throws if the strategy provides another dtype than the model computes in.
inline void require_dtype(const ddh::Host& host, const ddh_unit_view& view, int32_t dtype, const char* model) {
  for (uint32_t i = 0; i < view.n_params; ++i) {
    const ddh_param_view& p = param(view, i);
    if (p.dtype == dtype) continue;
    ddh::fail(DDH_INVALID_ARGUMENT, "the strategy provides parameter ", p.param, " in dtype ", p.dtype, ", but the ",
              model, " computes in ", host.text("precision.compute"),
              "; set precision.compute to the dtype of the strategy");
  }
}

}  // namespace ops
