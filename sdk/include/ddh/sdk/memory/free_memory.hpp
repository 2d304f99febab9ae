// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/memory/free_memory.hpp: the memory that this process can still take. It is compared before memory is allocated,
// because later the kernel would end the process by a signal, without an error message.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "ddh/sdk/structs.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

struct FreeMemory {
  uint64_t bytes = UINT64_MAX;  // UINT64_MAX: not known, or no limit
  std::string of;               // "this machine", "the control group /user.slice"
};

// Where the kernel shows them. Tests give files of their own.
struct MemoryFiles {
  std::filesystem::path machine = "/proc/meminfo";
  std::filesystem::path own_groups = "/proc/self/cgroup";
  std::filesystem::path groups = "/sys/fs/cgroup";
};

// The smallest of: what the machine has without swapping, and what the memory limits of this process's control groups leave
// (versions 1 and 2, at every level). File pages that the kernel can drop count as free.
[[nodiscard]] FreeMemory free_memory(const MemoryFiles& files = {});

// What the limit of this process's address space leaves (`ulimit -v`).
[[nodiscard]] FreeMemory free_addresses();

// Throws DDH_RESOURCE_EXHAUSTED if `bytes` more don't fit; `what` names the memory ("region 'h.3'").
void require_memory(const std::string& what, uint64_t bytes);

}  // namespace DDH_HIDDEN
}  // namespace ddh
