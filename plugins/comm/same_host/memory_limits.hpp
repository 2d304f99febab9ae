// SPDX-License-Identifier: Apache-2.0
//
// How much memory this machine, or the container around us, can still give. Asked before memory is taken, because
// afterwards the kernel answers with a signal instead of a sentence.
#pragma once

#include <cstdint>
#include <string>

namespace same_host {

struct MemoryRoom {
  uint64_t bytes = UINT64_MAX;  // UINT64_MAX = unknown
  std::string limit = "this machine";
};

[[nodiscard]] MemoryRoom memory_room();

// Throws DDH_RESOURCE_EXHAUSTED when `bytes` more don't fit; `what` names the memory ("region 'h.3'").
void require_memory(const std::string& what, uint64_t bytes);

}  // namespace same_host
