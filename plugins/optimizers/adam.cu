// SPDX-License-Identifier: Apache-2.0
//
// adam.cu: the kernels of adam.hpp, compiled to PTX.
#include "adam.hpp"

DDH_DEVICE_KERNEL(adam_l2, ddh::ElementKernel<adam::Formula<adam::Decay::l2>>)
DDH_DEVICE_KERNEL(adam_decoupled, ddh::ElementKernel<adam::Formula<adam::Decay::decoupled>>)
