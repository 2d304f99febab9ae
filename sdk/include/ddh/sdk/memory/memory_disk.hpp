// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/memory/memory_disk.hpp: where Linux keeps files in memory. They outlive a process, not the machine.
#pragma once

#include "ddh/sdk/structs.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

inline constexpr const char* kMemoryDisk = "/dev/shm";

}  // namespace DDH_HIDDEN
}  // namespace ddh
