// SPDX-License-Identifier: Apache-2.0
//
// lamb.cu: the kernels of lamb.hpp, compiled to PTX.
#include "lamb.hpp"

DDH_DEVICE_KERNEL(lamb_prepare, ddh::ShowKernel<lamb::Prepare>)
DDH_DEVICE_KERNEL(lamb_update, ddh::MoveKernel<lamb::Update>)
