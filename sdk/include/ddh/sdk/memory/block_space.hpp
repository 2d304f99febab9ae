// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/memory/block_space.hpp: memory for the blocks of an allocator that keeps them for its lifetime. It has huge pages,
// which speed up products, but blocks of a few megabytes do not round up to them: they lie one after the other.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// The caller takes care that one thread calls it at a time.
class BlockSpace {
 public:
  // Memory that begins at a multiple of 64 bytes if all sizes are multiples of 64. It is never given back. Throws
  // DDH_RESOURCE_EXHAUSTED.
  void* cut(uint64_t bytes) {
    if (bytes >= kOwnBytes) return map(bytes);
    auto at = std::find_if(open_.begin(), open_.end(), [&](const Range& range) { return range.left() >= bytes; });
    if (at == open_.end()) {
      char* const begin = map(kRangeBytes);
      at = open_.insert(open_.end(), Range{begin, begin + kRangeBytes});
    }
    char* const out = at->next;
    at->next += bytes;
    if (at->left() < kLeastBytes) open_.erase(at);
    return out;
  }

 private:
  static constexpr uint64_t kPageBytes = 4096, kHugePageBytes = uint64_t{2} << 20;
  static constexpr uint64_t kRangeBytes = uint64_t{32} << 20;  // of addresses; pages count once they are written
  static constexpr uint64_t kOwnBytes = uint64_t{8} << 20;     // blocks from this size on have a mapping of their own
  static constexpr uint64_t kLeastBytes = 1024;                // a shorter rest is left unused

  struct Range {
    char *next, *end;
    [[nodiscard]] uint64_t left() const { return static_cast<uint64_t>(end - next); }
  };

  // Begins on a huge page. What is left behind the last whole one has small pages.
  static char* map(uint64_t bytes) {
    const uint64_t used = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes, all = used + kHugePageBytes;
    void* const p = mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
      fail(DDH_RESOURCE_EXHAUSTED, "no memory for ", all >> 20, " MiB of tensors: ", std::strerror(errno),
           "; use a smaller model, a smaller batch or more ranks, or raise the limit of this process's addresses ",
           "(`ulimit -v`)");
    const auto from = reinterpret_cast<uintptr_t>(p);
    const uint64_t before = (kHugePageBytes - from % kHugePageBytes) % kHugePageBytes;
    char* const begin = static_cast<char*>(p) + before;
    if (before > 0) munmap(p, before);
    if (before < kHugePageBytes) munmap(begin + used, kHugePageBytes - before);
    madvise(begin, used / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
    return begin;
  }

  std::vector<Range> open_;  // with memory that is not cut yet
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
