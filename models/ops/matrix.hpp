// SPDX-License-Identifier: Apache-2.0
//
// ops/matrix.hpp: memory of a dtype of the ABI as a tensor of ATen.
#pragma once

#include <ATen/core/Tensor.h>

#include "ddh/abi.h"
#include "ddh/sdk/torch/device.hpp"
#include "products.hpp"

namespace ops {

inline at::ScalarType scalar_type(int32_t dtype) {
  return dtype == DDH_F32 ? at::kFloat : dtype == DDH_BF16 ? at::kBFloat16 : at::kHalf;
}
inline int32_t dtype_of(at::ScalarType type) {
  return type == at::kFloat ? DDH_F32 : type == at::kBFloat16 ? DDH_BF16 : DDH_F16;
}

// A tensor as an operand of a product, and as its destination: addresses for Products, and for nothing else. A tensor of the
// device `meta` has no address.
inline const void* operand(const at::Tensor& t) { return t.is_meta() ? nullptr : t.const_data_ptr(); }
inline Result result(const at::Tensor& t) {
  return {t.is_meta() ? nullptr : t.mutable_data_ptr(), dtype_of(t.scalar_type())};
}

// Rows at a distance of `stride` elements; 0: contiguous. The caller must keep constness.
inline at::Tensor matrix(const void* data, int64_t rows, int64_t columns, int32_t dtype, int64_t stride = 0,
                         at::Device device = at::kCPU) {
  return ddh::tensor_at(const_cast<void*>(data), {rows, columns}, {stride != 0 ? stride : columns, 1},
                        scalar_type(dtype), device);
}

}  // namespace ops
