// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/kernels/device_kernel.hpp: kernels that are written once, for a GPU (nvcc) and for the CPU (g++). A kernel is
// a plain struct of arguments whose operator() is the work of one thread of a grid:
//
//   struct Scale {
//     float* dst;
//     uint64_t numel;
//     float factor;
//     DDH_SIMD_INLINE void operator()(const ddh::GridPlace& at) const {
//       for (uint64_t i = at.first(); i < numel; i += at.stride()) dst[i] = dst[i] * factor;
//     }
//   };
//
//   DDH_DEVICE_KERNEL(scale, Scale)                 in a .cu file: the kernel `scale` of its PTX
//   ddh::run_grid(Scale{dst, numel, 2.0F}, 4, 32)   on the CPU, thread after thread
//
// Both give the same bits, because nvcc does not fuse products and sums (cmake/cuda.cmake), and both round as IEEE says.
// The threads of a grid share no memory but what they name; they meet in sum_over_warp only. A NaN may have another payload.
#pragma once

#include <cstdint>

#include "ddh/sdk/kernels/simd.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// A thread of a grid. Loops go from first() in steps of stride().
struct GridPlace {
  uint32_t thread, threads;  // in its block
  uint64_t block, blocks;

  [[nodiscard]] DDH_SIMD_INLINE uint64_t first() const { return block * threads + thread; }
  [[nodiscard]] DDH_SIMD_INLINE uint64_t stride() const { return blocks * threads; }
};

// A grid that covers `work` items, or loops over them.
struct Grid {
  static constexpr uint32_t kThreads = 256, kMostBlocks = 1024;
  explicit Grid(uint64_t work)
      : blocks(static_cast<uint32_t>(work > uint64_t{kMostBlocks} * kThreads ? kMostBlocks
                                     : work == 0                             ? 1
                                                                             : (work + kThreads - 1) / kThreads)) {}
  uint32_t blocks, threads = kThreads;
};

// *to += value, *to = min(*to, value), by threads of the same grid. Integers, so their order does not matter.
DDH_SIMD_INLINE void add_shared(uint64_t* to, uint64_t value) {
#if defined(__CUDA_ARCH__)
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
#else
  *to += value;
#endif
}
DDH_SIMD_INLINE void min_shared(uint64_t* to, uint64_t value) {
#if defined(__CUDA_ARCH__)
  atomicMin(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
#else
  *to = value < *to ? value : *to;
#endif
}
// Sums `values` over the 32 threads of a warp, if they arrive together and have the same `key`; else leaves them. True: this
// thread adds its values to the grid's result. So fewer threads add to one place, and wait less for each other.
template <int kValues>
DDH_SIMD_INLINE bool sum_over_warp([[maybe_unused]] uint64_t key, [[maybe_unused]] uint64_t (&values)[kValues]) {
#if defined(__CUDA_ARCH__)
  constexpr unsigned kAll = 0xffffffffU;
  if (__activemask() != kAll) return true;
  int same = 0;
  __match_all_sync(kAll, static_cast<unsigned long long>(key), &same);
  if (same == 0) return true;
  for (uint64_t& value : values)
    for (int step = 16; step > 0; step /= 2)
      value += __shfl_xor_sync(kAll, static_cast<unsigned long long>(value), step);
  return threadIdx.x % 32 == 0;
#else
  return true;
#endif
}

#if defined(__CUDACC__)
#define DDH_DEVICE_KERNEL(NAME, KERNEL)                                     \
  extern "C" __global__ void NAME(const __grid_constant__ KERNEL kernel) {  \
    kernel(ddh::GridPlace{threadIdx.x, blockDim.x, blockIdx.x, gridDim.x}); \
  }
#else
template <class Kernel>
void run_grid(const Kernel& kernel, uint32_t blocks, uint32_t threads) {
  for (uint32_t b = 0; b < blocks; ++b)
    for (uint32_t t = 0; t < threads; ++t) kernel(GridPlace{t, threads, b, blocks});
}
#endif

}  // namespace DDH_HIDDEN
}  // namespace ddh
