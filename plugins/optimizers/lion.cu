// SPDX-License-Identifier: Apache-2.0
//
// lion.cu: the kernels of lion.hpp, compiled to PTX.
#include "lion.hpp"

DDH_DEVICE_KERNEL(lion_update, ddh::ElementKernel<lion::Formula>)
