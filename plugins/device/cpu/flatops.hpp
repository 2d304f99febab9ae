// SPDX-License-Identifier: Apache-2.0
//
// flatops.hpp: ddh.flatops/0 of the CPU device: every operation runs inline.
#pragma once

#include "ddh/service/flatops.h"

namespace cpu {

// A constant table; its functions ignore `h` and the stream.
[[nodiscard]] const ddh_flatops_api& flatops();

}  // namespace cpu
