// SPDX-License-Identifier: Apache-2.0
//
// dropout_kernels.cu: the kernel of dropout by name, compiled to PTX.
#include "ddh/sdk/kernels/dropout.hpp"

DDH_DEVICE_KERNEL(drop_elements, ddh::DropElements)
