// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/room.hpp: the room for checkpoints.
#pragma once

#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

namespace ddhost {

inline constexpr double kMiB = 1024.0 * 1024;

// On the disk of a folder; infinity: not known.
inline double free_bytes(const std::filesystem::path& folder) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return INFINITY;
  return static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
}

// Bytes of memory that a host needs for checkpoint.memory_every, besides what is there. It `saves` of each checkpoint; the one
// before stays until the next is whole, and after a restart the host has a `whole` one.
inline uint64_t memory_needed(uint64_t saves, uint64_t whole, bool has_one) {
  return has_one ? saves : saves + std::max(saves, whole);
}

// Whether this sentence is about a lack of room. The failure may be of another host, so its text is all that is known.
inline bool is_lack_of_room(const std::string& failure) {
  return failure.find(std::strerror(ENOSPC)) != std::string::npos;
}

// "12.3 MiB"
inline std::string mib_text(double bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f MiB", bytes / kMiB);
  return text.data();
}

}  // namespace ddhost
