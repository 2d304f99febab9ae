// SPDX-License-Identifier: Apache-2.0
//
// cpu/peak_flops.hpp: the fastest arithmetic of one core.
#pragma once

#include <cstdint>

namespace cpu {

struct PeakFlops {
  double per_s;
  int32_t dtype;  // of the factors: DDH_F32 or DDH_BF16; sums are fp32
};

// Operations per second of this core with the fastest multiply-adds that it has (two operations each): fused ones in fp32, or
// for `bf16` its instructions for bf16 (AMX or AVX512_BF16). A processor without them computes bf16 in fp32. Takes less than
// 0.1 s.
PeakFlops measured_peak_flops(bool bf16);

}  // namespace cpu
