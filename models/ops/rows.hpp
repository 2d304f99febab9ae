// SPDX-License-Identifier: Apache-2.0
//
// ops/rows.hpp: tensors in host memory as elements and rows for kernels; images as rows of channels, one for each pixel.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "ddh/sdk/torch/device.hpp"
#include "ddh/sdk/torch/pieces.hpp"
#include "elements.hpp"

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
// The same for fp16 too, which kernels have as Half.
template <class Body>
void with_any_elements(const at::Tensor& x, const Body& body) {
  if (x.scalar_type() == at::kHalf)
    body(static_cast<const Half*>(x.const_data_ptr()));
  else
    with_elements(x, body);
}
template <class Element>
const Element* elements(const at::Tensor& x) {
  return static_cast<const Element*>(x.const_data_ptr());
}
template <class Element>
Element* mutable_elements(const at::Tensor& x) {
  return static_cast<Element*>(x.mutable_data_ptr());
}

// Rows of a chunk of at most `numel` elements, and at least one row.
inline int64_t chunk_rows(int64_t width, int64_t numel) {
  return std::max<int64_t>(1, numel / std::max<int64_t>(1, width));
}

// Calls body(first row, rows) for chunks of the rows, each on one thread. The default is a part of the second-level cache.
template <class Body>
void for_row_chunks(int64_t rows, int64_t width, const Body& body, int64_t numel = int64_t{1} << 15) {
  const int64_t step = chunk_rows(width, numel);
  ddh::for_pieces((rows + step - 1) / step, [&](int64_t i) { body(i * step, std::min(step, rows - i * step)); });
}

}  // namespace ops
