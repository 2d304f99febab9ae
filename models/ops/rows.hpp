// SPDX-License-Identifier: Apache-2.0
//
// ops/rows.hpp: images in host memory as rows of channels, one row for each pixel, for kernels over fp32 and bf16.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ddh/sdk/torch/device.hpp"

namespace ops {

// Whether the kernels of ops/ read x: fp32 or bf16 in host memory, and the run does not ask for LibTorch's operators alone.
inline bool takes_own_kernels(const at::Tensor& x) {
  return !ddh::by_operators(x) && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

// Whether x (N, C, H, W) can be read as rows (N H W, C) as it is: NHWC, or images of one pixel.
inline bool has_rows_of_channels(const at::Tensor& x) {
  if (x.dim() != 4) return false;
  return x.suggest_memory_format() == at::MemoryFormat::ChannelsLast || (x.size(2) == 1 && x.size(3) == 1);
}

// x (N, C, H, W) or (N, C), copied if it does not have the channels of a pixel side by side.
inline at::Tensor by_pixels(const at::Tensor& x) {
  return x.dim() == 4 ? x.contiguous(at::MemoryFormat::ChannelsLast) : x.contiguous();
}

// Calls body(pointer to the elements of x) with the type that kernels have for them: float, or uint16_t for bf16.
template <class Body>
void with_elements(const at::Tensor& x, const Body& body) {
  if (x.scalar_type() == at::kFloat)
    body(x.const_data_ptr<float>());
  else
    body(static_cast<const uint16_t*>(x.const_data_ptr()));
}
template <class Element>
const Element* elements(const at::Tensor& x) {
  return static_cast<const Element*>(x.const_data_ptr());
}
template <class Element>
Element* mutable_elements(const at::Tensor& x) {
  return static_cast<Element*>(x.mutable_data_ptr());
}

}  // namespace ops
