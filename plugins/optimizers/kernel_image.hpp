// SPDX-License-Identifier: Apache-2.0
//
// plugins/optimizers/kernel_image.hpp: DDH_KERNEL_IMAGE(adam) is the PTX of adam.cu, or nullptr where this build has no
// CUDA toolkit; then kKernelCaps says that the optimizer has no kernels.
#pragma once

#include "ddh/kind/optimizer.h"

#ifdef DDH_WITH_KERNELS
extern "C" const char adam_ptx[], adagrad_ptx[], lamb_ptx[], lion_ptx[], muon_ptx[], sgd_ptx[];
#define DDH_KERNEL_IMAGE(NAME) NAME##_ptx
inline constexpr uint64_t kKernelCaps = DDH_CAP_KERNELS;
#else
#define DDH_KERNEL_IMAGE(NAME) nullptr
inline constexpr uint64_t kKernelCaps = 0;
#endif
