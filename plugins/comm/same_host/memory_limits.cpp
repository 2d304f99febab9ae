// SPDX-License-Identifier: Apache-2.0
//
// Reads /proc/meminfo and the memory limits of the control groups (v2) of this process.
#include "memory_limits.hpp"

#include <algorithm>
#include <fstream>
#include <optional>

#include "ddh/sdk/plugin.hpp"

namespace same_host {
namespace {

std::optional<uint64_t> number_in(const std::string& path) {
  std::ifstream in(path);
  uint64_t value = 0;
  if (in >> value) return value;  // "max" is no number: no limit
  return std::nullopt;
}

uint64_t available_on_machine() {
  std::ifstream in("/proc/meminfo");
  std::string word;
  while (in >> word) {
    uint64_t kib = 0;
    if (word == "MemAvailable:" && in >> kib) return kib * 1024;
  }
  return UINT64_MAX;
}

std::string control_group() {
  std::ifstream in("/proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind("0::", 0) == 0) return line.substr(3);
  }
  return {};
}

}  // namespace

MemoryRoom memory_room() {
  MemoryRoom room;
  room.bytes = available_on_machine();
  // Any level above this group may have a limit; inside a container this group is the root.
  std::string group = control_group();
  for (bool more = !group.empty(); more;) {
    const std::string folder = "/sys/fs/cgroup" + (group == "/" ? std::string() : group);
    const auto most = number_in(folder + "/memory.max");
    const auto used = number_in(folder + "/memory.current");
    const uint64_t left = most && used && *most > *used ? *most - *used : 0;
    if (most && used && left < room.bytes) room = {left, "the control group " + group};
    more = group != "/";
    group.erase(std::max<size_t>(group.rfind('/'), 1));
  }
  return room;
}

void require_memory(const std::string& what, uint64_t bytes) {
  const MemoryRoom room = memory_room();
  if (bytes <= room.bytes) return;
  ddh::fail(DDH_RESOURCE_EXHAUSTED, what, " needs ", bytes, " bytes of memory, but ", room.limit, " has only ",
            room.bytes, " left; use fewer ranks, a smaller model or a machine with more memory");
}

}  // namespace same_host
