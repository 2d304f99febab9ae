// SPDX-License-Identifier: Apache-2.0
#include "flat.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ddh/sdk/kernels/lowp.hpp"
#include "ddh/sdk/plugin.hpp"

namespace sim::flat {
namespace {

using ddh::Bf16;
using ddh::F16;

template <class T>
std::function<void()> fill_with(void* dst, uint64_t numel, T value) {
  return [=] { std::fill_n(static_cast<T*>(dst), numel, value); };
}

bool is_float(int32_t dtype) { return dtype == DDH_F32 || dtype == DDH_BF16 || dtype == DDH_F16; }

float widen(const void* src, int32_t dtype, uint64_t i) {
  if (dtype == DDH_F32) return static_cast<const float*>(src)[i];
  const uint16_t half = static_cast<const uint16_t*>(src)[i];
  return dtype == DDH_BF16 ? Bf16::to_f32(half) : F16::to_f32(half);
}

void narrow(void* dst, int32_t dtype, uint64_t i, float value) {
  if (dtype == DDH_F32)
    static_cast<float*>(dst)[i] = value;
  else
    static_cast<uint16_t*>(dst)[i] = dtype == DDH_BF16 ? Bf16::from_f32(value) : F16::from_f32(value);
}

}  // namespace

std::function<void()> fill(void* dst, int32_t dtype, uint64_t numel, double value) {
  const auto f32 = static_cast<float>(value);
  switch (dtype) {
    case DDH_F32:
      return fill_with(dst, numel, f32);
    case DDH_F64:
      return fill_with(dst, numel, value);
    case DDH_BF16:
      return fill_with(dst, numel, Bf16::from_f32(f32));
    case DDH_F16:
      return fill_with(dst, numel, F16::from_f32(f32));
    default:
      break;
  }
  const uint64_t bytes = numel * ddh_dtype_bytes(dtype);
  if (ddh_dtype_bytes(dtype) == 0 || value != 0)
    ddh::fail(DDH_UNIMPLEMENTED, "fill has no dtype ", dtype, " with value ", value,
              "; use F32, BF16, F16 or F64, or the value 0");
  return [=] { std::fill_n(static_cast<char*>(dst), bytes, '\0'); };
}

std::function<void()> cast(void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype, uint64_t numel) {
  if (!is_float(dst_dtype) || !is_float(src_dtype))
    ddh::fail(DDH_UNIMPLEMENTED, "cast does not convert from dtype ", src_dtype, " to dtype ", dst_dtype,
              "; use F32, BF16 or F16");
  if (dst_dtype == src_dtype) {
    const uint64_t bytes = numel * ddh_dtype_bytes(src_dtype);
    return [=] {
      if (bytes > 0) std::memmove(dst, src, bytes);
    };
  }
  return [=] {
    for (uint64_t i = 0; i < numel; ++i) narrow(dst, dst_dtype, i, widen(src, src_dtype, i));
  };
}

std::function<void()> scale(float* dst, uint64_t numel, float factor) {
  return [=] {
    for (uint64_t i = 0; i < numel; ++i) dst[i] *= factor;
  };
}

std::function<void()> add(float* dst, const float* src, uint64_t numel) {
  return [=] {
    for (uint64_t i = 0; i < numel; ++i) dst[i] += src[i];
  };
}

}  // namespace sim::flat
