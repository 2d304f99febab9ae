// SPDX-License-Identifier: Apache-2.0
//
// sgd.cu: the kernels of sgd.hpp, compiled to PTX.
#include "sgd.hpp"

using NesterovFirst = ddh::ElementKernel<sgd::Momentum<true, true>>;
using Nesterov = ddh::ElementKernel<sgd::Momentum<true, false>>;
using MomentumFirst = ddh::ElementKernel<sgd::Momentum<false, true>>;
using Momentum = ddh::ElementKernel<sgd::Momentum<false, false>>;

DDH_DEVICE_KERNEL(sgd_plain, ddh::ElementKernel<sgd::Plain>)
DDH_DEVICE_KERNEL(sgd_nesterov_first, NesterovFirst)
DDH_DEVICE_KERNEL(sgd_nesterov, Nesterov)
DDH_DEVICE_KERNEL(sgd_momentum_first, MomentumFirst)
DDH_DEVICE_KERNEL(sgd_momentum, Momentum)
