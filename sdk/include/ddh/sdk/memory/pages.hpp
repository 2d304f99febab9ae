// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/memory/pages.hpp: blocks of host memory, mapped from the system.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 {  // not hidden: a class of the host has one as a member

// Thread-safe.
class Pages {
 public:
  Pages() = default;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages();  // releases all remaining blocks

  // A zero-filled block that begins on a page. Throws ddh::Error with the system's reason.
  void* allocate(uint64_t bytes);
  void release(void* p);

 private:
  std::mutex mutex_;
  std::unordered_map<void*, uint64_t> mapped_bytes_;
};

namespace detail {

inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
// Arrays at a distance of a large power of two share cache sets: AdamW over four arrays 128 MiB apart takes twice the
// time. An unused gap after each large block avoids that distance between equal blocks.
inline constexpr uint64_t kLargeBytes = uint64_t{32} << 20;
inline constexpr uint64_t kGapBytes = uint64_t{4} << 20;

}  // namespace detail

inline Pages::~Pages() {
  for (const auto& [p, bytes] : mapped_bytes_) munmap(p, bytes);
}

inline void* Pages::allocate(uint64_t bytes) {
  const uint64_t pages =
      (std::max<uint64_t>(bytes, 1) + detail::kPageBytes - 1) / detail::kPageBytes * detail::kPageBytes;
  const uint64_t mapped = pages + (pages >= detail::kLargeBytes ? detail::kGapBytes : 0);
  void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) fail(DDH_RESOURCE_EXHAUSTED, std::strerror(errno));
  if (mapped >= detail::kHugePageBytes) madvise(p, mapped, MADV_HUGEPAGE);  // streaming passes gain 6-12 %
  const std::lock_guard lock(mutex_);
  mapped_bytes_.emplace(p, mapped);
  return p;
}

inline void Pages::release(void* p) {
  const std::lock_guard lock(mutex_);
  const auto at = mapped_bytes_.find(p);
  if (at == mapped_bytes_.end()) return;
  munmap(p, at->second);
  mapped_bytes_.erase(at);
}

}  // namespace v1
}  // namespace ddh
