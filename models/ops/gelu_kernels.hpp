// SPDX-License-Identifier: Apache-2.0
//
// ops/gelu_kernels.hpp: GELU and its gradient over elements of fp32, of bf16 as its bits (uint16_t), or of fp16 (Half). The
// same bits with AVX2 and AVX-512 (fused_kernel.hpp). GELU differs from its value by at most 5e-7 (|value| + 0.2), and the
// gradient by 1e-6 of the same. Far below 0, where GELU is small, its relative error grows to 6e-6.
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
