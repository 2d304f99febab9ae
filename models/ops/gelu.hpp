// SPDX-License-Identifier: Apache-2.0
//
// ops/gelu.hpp: x Phi(x), where Phi is the distribution function of the normal distribution (Hendrycks and Gimpel 2016).
#pragma once

#include <ATen/core/Tensor.h>

namespace ops {

// Element by element, in the dtype of x: fp32, bf16 or fp16. tanh: GPT-2's approximation; erf: Phi itself.
enum class Gelu { kErf, kTanh };
at::Tensor gelu(Gelu form, const at::Tensor& x);
at::Tensor gelu_backward(Gelu form, const at::Tensor& dy, const at::Tensor& x);

}  // namespace ops
