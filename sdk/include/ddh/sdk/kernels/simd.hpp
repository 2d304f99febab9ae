// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/kernels/simd.hpp: kernels that are written once and run at the width of the machine's vectors.
//
// A kernel is a struct with one static, always-inlined `run` that loops over flat arrays in plain C++. Kernel<Body>
// compiles it for the base target, for AVX2 and for AVX-512, and picks the widest that the processor has, once:
//
//   struct Add {
//     DDH_SIMD_BODY void run(float* dst, const float* src, uint64_t numel) {
//       DDH_SIMD_LOOP for (uint64_t i = 0; i < numel; ++i) dst[i] += src[i];
//     }
//   };
//   ddh::Kernel<Add>::run(dst, src, numel);
//
// Every width gives the same bits, because the IEEE operations of each element are the same. This requires
// DDH_KERNEL_FLAGS (ddh_kernel_flags.cmake; ddh_add_plugin sets them), and never -ffast-math. A body may call only
// DDH_SIMD_INLINE functions and must not contain a lambda.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "ddh/sdk/plugin.hpp"

#ifdef __FAST_MATH__
#error "-ffast-math gives other bits on other machines; compile kernels without it"
#endif

// nvcc compiles the same functions for a GPU (device_kernel.hpp).
#if defined(__CUDACC__)
#define DDH_SIMD_INLINE __host__ __device__ __forceinline__
#else
#define DDH_SIMD_INLINE __attribute__((always_inline)) inline
#endif
#define DDH_SIMD_BODY DDH_SIMD_INLINE static

// Marks a loop whose iterations don't depend on each other: arrays may be equal but must not overlap partly.
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"  // builds without optimization warn that loops are not vectorized
#define DDH_SIMD_LOOP _Pragma("clang loop vectorize(assume_safety) interleave(enable)")
#else
#define DDH_SIMD_LOOP _Pragma("GCC ivdep")
#endif

#if defined(__x86_64__)
#define DDH_SIMD_AVX2 __attribute__((target("avx2")))
#if defined(__clang__)
#define DDH_SIMD_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"), min_vector_width(512)))
#else
#define DDH_SIMD_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif
#else
#define DDH_SIMD_AVX2
#define DDH_SIMD_AVX512
#endif

namespace ddh {
inline namespace v1 DDH_HIDDEN {

enum class SimdLevel : int32_t { base = 0, avx2 = 1, avx512 = 2 };
inline constexpr int32_t kSimdLevels = 3;

// The widest level of this processor.
SimdLevel simd_level();

template <class Body, class Function = decltype(&Body::run)>
class Kernel;

template <class Body, class R, class... Args>
class Kernel<Body, R (*)(Args...)> {
 public:
  using Function = R (*)(Args...);

  static R run(Args... args) {
    static const Function chosen = at(simd_level());
    return chosen(args...);
  }

  // The function of one level, for tests; the processor must support it.
  static Function at(SimdLevel level) {
    constexpr std::array<Function, kSimdLevels> kTable{base, avx2, avx512};
    return kTable[static_cast<size_t>(level)];
  }

 private:
  static R base(Args... args) { return Body::run(args...); }
  DDH_SIMD_AVX2 static R avx2(Args... args) { return Body::run(args...); }
  DDH_SIMD_AVX512 static R avx512(Args... args) { return Body::run(args...); }
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
