// SPDX-License-Identifier: Apache-2.0
//
// flatops.cpp: see flatops.hpp.
#include "flatops.hpp"

#include "ddh/sdk/flat.hpp"
#include "ddh/sdk/plugin.hpp"

namespace cpu {

const ddh_flatops_api& flatops() {
  static const ddh_flatops_api table = {
      sizeof(ddh_flatops_api),
      0,
      [](void*, void* dst, int32_t dtype, uint64_t numel, double value, ddh_stream*, ddh_err* err) noexcept {
        return ddh::guard(err, [&] { ddh::flat::fill(dst, dtype, numel, value); });
      },
      [](void*, void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype, uint64_t numel, ddh_stream*,
         ddh_err* err) noexcept {
        return ddh::guard(err, [&] { ddh::flat::cast(dst, dst_dtype, src, src_dtype, numel); });
      },
      [](void*, float* dst, uint64_t numel, double factor, ddh_stream*, ddh_err* err) noexcept {
        return ddh::guard(err, [&] { ddh::flat::scale(dst, numel, static_cast<float>(factor)); });
      },
      [](void*, float* dst, const float* src, uint64_t numel, ddh_stream*, ddh_err* err) noexcept {
        return ddh::guard(err, [&] { ddh::flat::add(dst, src, numel); });
      },
      nullptr,
      nullptr,
  };
  return table;
}

}  // namespace cpu
