// SPDX-License-Identifier: Apache-2.0
//
// block_sum.cu: a sum over the threads of a block through shared memory, to test barriers.
#include <cstdint>

struct BlockSum {
  const float* src;
  float* dst;  // one number for each block
};

extern "C" __global__ void block_sum(const __grid_constant__ BlockSum k) {
  __shared__ float partial[64];
  partial[threadIdx.x] = k.src[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) k.dst[blockIdx.x] = partial[0];
}
