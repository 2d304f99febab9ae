// SPDX-License-Identifier: Apache-2.0
//
// Reads /proc/meminfo, and the limits of the control groups and of the process.
#include "ddh/sdk/memory/free_memory.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {
namespace {

namespace fs = std::filesystem;

std::optional<uint64_t> number_in(const fs::path& path) {
  std::ifstream in(path);
  uint64_t value = 0;
  if (in >> value) return value;  // "max" is no number: no limit
  return std::nullopt;
}

// The number after a word, as in "MemAvailable:   123 kB".
std::optional<uint64_t> number_after(const fs::path& path, std::string_view name) {
  std::ifstream in(path);
  for (std::string word; in >> word;) {
    uint64_t value = 0;
    if (word == name && in >> value) return value;
  }
  return std::nullopt;
}

// The names of files in a group's folder, which differ between the versions.
struct Version {
  const char *folder, *limit, *used, *inactive_file, *active_file, *slab;
};
constexpr Version kSecond = {"", "memory.max", "memory.current", "inactive_file", "active_file", "slab_reclaimable"};
constexpr Version kFirst = {
    "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file", "-"};

// What the limits of a group and of those above it leave. In a container the group's own folder may be the root.
void lower_by_groups(FreeMemory& free, const fs::path& root, const Version& version, std::string group) {
  for (bool more = !group.empty(); more;) {
    const fs::path folder = root / version.folder / fs::path(group).relative_path();
    const auto most = number_in(folder / version.limit);
    const auto used = number_in(folder / version.used);
    // What can be dropped is counted only if it matters: the file is long, and most groups have no limit.
    if (most && used && *most - std::min(*most, *used) < free.bytes) {
      const fs::path counts = folder / "memory.stat";
      const uint64_t droppable = number_after(counts, version.inactive_file).value_or(0) +
                                 number_after(counts, version.active_file).value_or(0) +
                                 number_after(counts, version.slab).value_or(0);
      const uint64_t kept = *used - std::min(*used, droppable), left = *most - std::min(*most, kept);
      if (left < free.bytes) free = {left, "the control group " + group};
    }
    more = group != "/";
    group.erase(std::max<size_t>(group.rfind('/'), 1));
  }
}

}  // namespace

FreeMemory free_memory(const MemoryFiles& files) {
  FreeMemory free;
  if (const auto kib = number_after(files.machine, "MemAvailable:")) free = {*kib * 1024, "this machine"};
  std::ifstream groups(files.own_groups);
  for (std::string line; std::getline(groups, line);) {  // "0::/user.slice", "5:memory:/user.slice"
    std::istringstream fields(line);
    std::string id, controllers, group;
    if (!std::getline(fields, id, ':') || !std::getline(fields, controllers, ':') || !std::getline(fields, group))
      continue;
    if (controllers.empty()) lower_by_groups(free, files.groups, kSecond, group);
    if (("," + controllers + ",").find(",memory,") != std::string::npos)
      lower_by_groups(free, files.groups, kFirst, group);
  }
  return free;
}

FreeMemory free_addresses() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {UINT64_MAX, "no limit"};
  const uint64_t used = number_after("/proc/self/status", "VmSize:").value_or(0) * 1024;
  const uint64_t most = limit.rlim_cur;
  return {most - std::min(most, used), "the limit of a process's addresses (ulimit -v)"};
}

void require_memory(const std::string& what, uint64_t bytes) {
  const FreeMemory free = free_memory();
  if (bytes <= free.bytes) return;
  fail(DDH_RESOURCE_EXHAUSTED, what, " needs ", bytes, " bytes of memory, but ", free.of, " has only ", free.bytes,
       " left; use fewer ranks, a smaller model or a machine with more memory");
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
