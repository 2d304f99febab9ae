// SPDX-License-Identifier: Apache-2.0
//
// driver.hpp: the functions of NVIDIA's driver, found when a device is counted or opened. No CUDA library is linked, so
// the plugin loads on machines without a driver.
#pragma once

#include <cuda.h>

#include <string>

#include "ddh/sdk/plugin.hpp"

namespace cuda DDH_HIDDEN {

// cuda.h renames some of them (cuMemAlloc is cuMemAlloc_v2); they are looked up by their plain names.
// clang-format off
#define DDH_CUDA_FIRST_FUNCTIONS(X)                                                                             \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString)
#define DDH_CUDA_FUNCTIONS(X)                                                                                   \
  X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetAttribute) X(cuDeviceGetUuid)              \
  X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuCtxSetCurrent) X(cuMemGetInfo) X(cuMemAlloc)     \
  X(cuMemFree) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuPointerGetAttribute) X(cuStreamCreateWithPriority)        \
  X(cuStreamDestroy) X(cuStreamSynchronize) X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord)                 \
  X(cuStreamWaitEvent) X(cuLaunchHostFunc) X(cuMemcpyAsync) X(cuMemsetD8Async) X(cuModuleLoadDataEx)            \
  X(cuModuleUnload) X(cuModuleGetFunction) X(cuFuncGetParamInfo) X(cuLaunchKernel) X(cuStreamBeginCapture)      \
  X(cuStreamEndCapture) X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) X(cuGraphExecDestroy)                   \
  X(cuGraphDestroy)
// clang-format on

struct Driver {
// NOLINTNEXTLINE(bugprone-macro-parentheses): the name of a field
#define DDH_CUDA_FIELD(F) decltype(&::F) F = nullptr;
  DDH_CUDA_FIRST_FUNCTIONS(DDH_CUDA_FIELD)
  DDH_CUDA_FUNCTIONS(DDH_CUDA_FIELD)
#undef DDH_CUDA_FIELD

  // Opens `file` ("libcuda.so.1") and starts the driver. Error UNAVAILABLE: there is no driver, it is too old, it
  // can't be started, or it finds no GPU.
  static Driver open(const std::string& file);

  // "out of memory (CUDA_ERROR_OUT_OF_MEMORY)".
  [[nodiscard]] std::string text_of(CUresult result) const;
  // Throws where a call failed. RESOURCE_EXHAUSTED: out of memory.
  void check(CUresult result, const char* call) const;
};

}  // namespace DDH_HIDDEN
