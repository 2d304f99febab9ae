// SPDX-License-Identifier: Apache-2.0
//
// ops/products_torch.hpp: linear layers by operators of LibTorch alone, on any of its devices.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "products.hpp"

namespace ops {

// Pointers are addresses of the memory of `device`. Sums are fp32, also those of 16-bit operands.
std::unique_ptr<Products> make_torch_products(int32_t dtype, c10::Device device);

}  // namespace ops
