// SPDX-License-Identifier: Apache-2.0
//
// host/device/cpu/device.hpp: the built-in device "cpu", a ddh_module like that of any plugin. Its memory is the host's;
// every stream runs inline.
#pragma once

#include "ddh/abi.h"

namespace ddhost::cpu {

[[nodiscard]] const ddh_module& device_module();

}  // namespace ddhost::cpu
