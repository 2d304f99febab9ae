// SPDX-License-Identifier: Apache-2.0
//
// ops/fused_kernel.hpp: as ddh::Kernel, with fused multiply-adds where the processor has them: half the time for sums of
// products and polynomials. AVX2 with FMA, and AVX-512, give the same bits. Any other processor gives other bits. Compile
// with -ffp-contract=fast besides DDH_KERNEL_FLAGS.
#pragma once

#include "ddh/sdk/kernels/simd.hpp"

namespace ops {

template <class Body, class Function = decltype(&Body::run)>
struct FusedKernel;
template <class Body, class... Args>
struct FusedKernel<Body, void (*)(Args...)> {
  using Function = void (*)(Args...);
  static void base(Args... args) { Body::run(args...); }
#if defined(__x86_64__)
  __attribute__((target("avx2,fma"))) static void avx2(Args... args) { Body::run(args...); }
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"))) static void avx512(
      Args... args) {
    Body::run(args...);
  }
#endif
  static Function at(ddh::SimdLevel level) {
#if defined(__x86_64__)
    if (level == ddh::SimdLevel::avx512) return avx512;
    if (level == ddh::SimdLevel::avx2 && __builtin_cpu_supports("fma")) return avx2;
#endif
    return base;
  }
  static void run(Args... args) {
    static const Function chosen = at(ddh::simd_level());
    chosen(args...);
  }
};

}  // namespace ops
