// SPDX-License-Identifier: Apache-2.0
//
// flat.hpp: ddh.flatops/0 of the GPU: each operation is a kernel of flat_kernels.cu.
#pragma once

#include "context.hpp"
#include "ddh/service/flatops.h"

namespace cuda DDH_HIDDEN {

// A constant table; `h` is a Context.
[[nodiscard]] const ddh_flatops_api& flatops();
// Loads all kernels of flat operations: inside of a capture CUDA loads none.
void load_flat_kernels(Context& context);

}  // namespace DDH_HIDDEN
