// SPDX-License-Identifier: Apache-2.0
//
// flat.hpp: the arithmetic of ddh.flatops/0 in plain loops, with the same bits as the CPU's. Each function checks its
// dtypes at once (Error UNIMPLEMENTED) and returns the work to queue.
#pragma once

#include <cstdint>
#include <functional>

namespace sim::flat {

std::function<void()> fill(void* dst, int32_t dtype, uint64_t numel, double value);
std::function<void()> cast(void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype, uint64_t numel);
std::function<void()> scale(float* dst, uint64_t numel, float factor);
std::function<void()> add(float* dst, const float* src, uint64_t numel);

}  // namespace sim::flat
