// SPDX-License-Identifier: Apache-2.0
//
// launch/memory_kills.hpp: whether the kernel has ended a rank for lack of memory. Such a rank dies of signal 9, like one
// that a user has killed; the counters of its cgroup tell the two apart.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace ddhost {

// Where the kernel shows its counters. Tests give files of their own.
struct CgroupFiles {
  std::filesystem::path own = "/proc/self/cgroup";  // the cgroups of this process
  std::filesystem::path root = "/sys/fs/cgroup";    // where they are mounted
  std::filesystem::path machine = "/proc/vmstat";   // for a process that no cgroup counts
};

// The processes that the kernel has ended for lack of memory since this object was made: in this process's cgroup (version 1
// or 2), or on the whole machine if the cgroup has no such counter.
class MemoryKills {
 public:
  explicit MemoryKills(const CgroupFiles& files);

  // "the memory limit of its cgroup is 512 MiB", "the machine had no memory left"; nothing if the counter has not risen.
  [[nodiscard]] std::optional<std::string> reason() const;

 private:
  struct Counter {
    std::filesystem::path file;
    std::string name;             // of its line: "oom_kill"
    std::filesystem::path limit;  // of the cgroup; empty: the machine's counter
  };
  static Counter find_counter(const CgroupFiles& files);
  [[nodiscard]] std::optional<uint64_t> count() const;

  const Counter counter_;
  const std::optional<uint64_t> before_;
};

}  // namespace ddhost
