// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/cuda_library.hpp: opens LibTorch's operators for NVIDIA GPUs (libtorch_cuda.so) at run time. So one build
// of a model runs with every build of LibTorch, and a run on the CPU loads nothing. No header of CUDA is needed.
#pragma once

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// The folder of the LibTorch that this process uses.
inline std::string torch_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&at::globalContext), &info) == 0 || info.dli_fname == nullptr) return "";
  return std::filesystem::path(info.dli_fname).parent_path().string();
}

namespace detail {

// Products and convolutions in fp32 itself, and the same bits in every run where LibTorch has a way to get them.
inline void settle_cuda_numerics() {
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(false);
  context.setAllowTF32CuDNN(false);
  // Split sums stay allowed: without them some products of cuBLAS end with an error.
  context.setAllowFP16ReductionCuBLAS(false);
  context.setAllowBF16ReductionCuBLAS(false);
  context.setBenchmarkCuDNN(false);
  context.setDeterministicCuDNN(true);
  context.setDeterministicAlgorithms(true, /*warn_only=*/true);
  context.setDeterministicFillUninitializedMemory(false);
}

}  // namespace detail

// Loads the library of `folder` and finds the GPUs. It must be called before anything asks at::hasCUDA(), because
// LibTorch keeps the first answer. Throws Error: this LibTorch has no such library, it can't be loaded, or it finds no
// GPU.
inline void load_torch_cuda(const std::string& folder = torch_folder()) {
  const std::string library = (std::filesystem::path(folder) / "libtorch_cuda.so").string();
  std::error_code ignored;
  if (!std::filesystem::exists(library, ignored))
    fail(DDH_FAILED_PRECONDITION, "the LibTorch in '", folder,
         "' is built for CPUs (it has no libtorch_cuda.so); give ",
         "a LibTorch with CUDA in DDHOST_LIBTORCH and build again, or choose --device cpu");
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // cuBLAS: the same bits in every run
  if (dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL) == nullptr)
    fail(DDH_UNAVAILABLE, "LibTorch's library for GPUs, '", library, "', can't be loaded (", dlerror(),
         "); install the NVIDIA libraries that this LibTorch needs, or choose --device cpu");
  if (at::detail::getCUDAHooks().deviceCount() <= 0)
    fail(DDH_UNAVAILABLE, "LibTorch finds no GPU with '", library, "', though device.plugin found one; check that the ",
         "driver is new enough for this LibTorch, or choose --device cpu");
  at::globalContext().lazyInitDevice(at::kCUDA);
  detail::settle_cuda_numerics();
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
