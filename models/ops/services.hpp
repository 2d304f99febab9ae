// SPDX-License-Identifier: Apache-2.0
//
// ops/services.hpp: the host's services that a model uses where they are there. Only a device that runs kernels needs theirs.
#pragma once

#include "ddh/ddh.h"

namespace ops {

inline constexpr const char* kWants[] = {DDH_CONFIG_IFACE, DDH_LOG_IFACE, DDH_METRICS_IFACE, DDH_KERNELS_IFACE,
                                         nullptr};

}  // namespace ops
