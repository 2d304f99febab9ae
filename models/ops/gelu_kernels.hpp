// SPDX-License-Identifier: Apache-2.0
//
// ops/gelu_kernels.hpp: GELU and its gradient over elements of fp32, or of bf16 as its bits, in one pass. The same bits with
// AVX2 and AVX-512 (fused_kernel.hpp). Phi is within 2e-7 of its value.
#pragma once

#include <cstdint>

#include "gelu.hpp"

namespace ops {

// Arrays may be equal.
template <class Element>
void gelu_elements(Gelu form, const Element* x, int64_t numel, Element* y);
// dx = dy times the slope at x.
template <class Element>
void gelu_elements_backward(Gelu form, const Element* dy, const Element* x, int64_t numel, Element* dx);

}  // namespace ops
