// SPDX-License-Identifier: Apache-2.0
#include "launch/memory_kills.hpp"

#include <fstream>

#include "ddh/sdk/plugin.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

constexpr const char* kCounter = "oom_kill";

// The value of a line "name 3", or nothing.
std::optional<uint64_t> value_of(const fs::path& file, const std::string& name) {
  std::ifstream in(file);
  uint64_t value = 0;
  for (std::string word; in >> word;) {
    if (word == name && in >> value) return value;
    in.clear();
    std::getline(in, word);
  }
  return std::nullopt;
}

// A container may see its own cgroup as the root of the mount.
fs::path folder_of(const fs::path& mount, const std::string& cgroup, const char* file) {
  const fs::path folder = mount / fs::path(cgroup).relative_path();
  std::error_code ec;
  return fs::exists(folder / file, ec) ? folder : mount;
}

}  // namespace

MemoryKills::Counter MemoryKills::find_counter(const CgroupFiles& files) {
  std::ifstream in(files.own);
  Counter unified{};
  for (std::string line; std::getline(in, line);) {  // "4:memory:/a/b" of version 1, "0::/a/b" of version 2
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",",
                      cgroup = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos) {
      const fs::path folder = folder_of(files.root / "memory", cgroup, "memory.oom_control");
      Counter counter{folder / "memory.oom_control", kCounter, folder / "memory.limit_in_bytes"};
      if (value_of(counter.file, counter.name)) return counter;
    } else if (controllers == ",,") {
      const fs::path folder = folder_of(files.root, cgroup, "memory.events");
      unified = {folder / "memory.events", kCounter, folder / "memory.max"};
    }
  }
  if (!unified.file.empty() && value_of(unified.file, unified.name)) return unified;
  return {files.machine, kCounter, {}};
}

MemoryKills::MemoryKills(const CgroupFiles& files) : counter_(find_counter(files)), before_(count()) {}

std::optional<uint64_t> MemoryKills::count() const { return value_of(counter_.file, counter_.name); }

std::optional<std::string> MemoryKills::reason() const {
  const std::optional<uint64_t> now = count();
  if (!now || !before_ || *now <= *before_) return std::nullopt;
  uint64_t bytes = 0;
  constexpr uint64_t kMiB = uint64_t{1} << 20, kNoLimit = uint64_t{1} << 60;
  std::ifstream in(counter_.limit);
  if (!counter_.limit.empty() && in >> bytes && bytes < kNoLimit)
    return ddh::str("the memory limit of its cgroup is ", bytes / kMiB, " MiB");
  return "the machine had no memory left";
}

}  // namespace ddhost
