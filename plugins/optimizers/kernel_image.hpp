// SPDX-License-Identifier: Apache-2.0
//
// plugins/optimizers/kernel_image.hpp: DDH_KERNEL_IMAGE(adam) is the PTX of adam.cu, or nullptr where this build has no
// CUDA toolkit; then kKernelCaps says that the optimizer has no kernels.
#pragma once

#include "ddh/kind/optimizer.h"
#include "ddh/service/config.h"
#include "ddh/service/kernels.h"
#include "ddh/service/log.h"
#include "ddh/service/metrics.h"
#include "ddh/service/stream.h"

#ifdef DDH_WITH_KERNELS
extern "C" const char adam_ptx[], adagrad_ptx[], lamb_ptx[], lion_ptx[], muon_ptx[], sgd_ptx[];
#define DDH_KERNEL_IMAGE(NAME) NAME##_ptx
inline constexpr uint64_t kKernelCaps = DDH_CAP_KERNELS;
#else
#define DDH_KERNEL_IMAGE(NAME) nullptr
inline constexpr uint64_t kKernelCaps = 0;
#endif

// Only a device that runs kernels needs the services of kernels and streams.
inline constexpr const char* kKernelWants[] = {DDH_CONFIG_IFACE,  DDH_LOG_IFACE,    DDH_METRICS_IFACE,
                                               DDH_KERNELS_IFACE, DDH_STREAM_IFACE, nullptr};
