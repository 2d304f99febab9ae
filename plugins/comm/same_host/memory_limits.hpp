// SPDX-License-Identifier: Apache-2.0
//
// The free memory of this machine or container. It is checked before memory is allocated, because later the kernel
// would end the process by a signal, without an error message.
#pragma once

#include <cstdint>
#include <string>

namespace same_host {

struct MemoryRoom {
  uint64_t bytes = UINT64_MAX;  // UINT64_MAX = unknown
  std::string limit = "this machine";
};

[[nodiscard]] MemoryRoom memory_room();

// Throws DDH_RESOURCE_EXHAUSTED if `bytes` more don't fit; `what` names the memory ("region 'h.3'").
void require_memory(const std::string& what, uint64_t bytes);

}  // namespace same_host
