// SPDX-License-Identifier: Apache-2.0
//
// adagrad.cu: the kernels of adagrad.hpp, compiled to PTX.
#include "adagrad.hpp"

DDH_DEVICE_KERNEL(adagrad_first, ddh::ElementKernel<adagrad::Formula<true>>)
DDH_DEVICE_KERNEL(adagrad_later, ddh::ElementKernel<adagrad::Formula<false>>)
