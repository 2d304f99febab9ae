// SPDX-License-Identifier: Apache-2.0
//
// services/memory.hpp: one rank's tagged memory. Bytes by tag are counted twice: addressable (all that the rank can
// reach, the formulas of the literature) and unique (without views of pages that another rank has paid for).
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "ddh/ddh.h"

namespace ddhost {

inline constexpr size_t kTagCount = 6;
inline constexpr std::array<const char*, kTagCount> kTagNames = {"param", "grad", "optim", "act", "comm", "data"};

struct TagUsage {
  uint64_t now_bytes = 0;
  uint64_t peak_bytes = 0;
  uint64_t unique_now_bytes = 0;
  uint64_t unique_peak_bytes = 0;
};

// Thread-safe: the data worker allocates beside the main thread.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();  // releases what plugins left behind

  // A 256-byte aligned, zero-filled block. Throws ddh::Error naming tag, bytes and `name`.
  void* allocate(int32_t tag, uint64_t bytes, const char* name);
  void release(void* p);

  // Memory held elsewhere. `alias`: a view of pages that some rank already counts as unique.
  void account(int32_t tag, int64_t bytes, bool alias);

  [[nodiscard]] TagUsage usage(int32_t tag) const;

 private:
  struct Block {
    int32_t tag;
    uint64_t bytes;
    uint64_t mapped_bytes;
  };
  void add(int32_t tag, int64_t bytes, bool alias);  // with mutex_ held

  mutable std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;
  std::array<TagUsage, kTagCount> usage_{};
};

// Throws unless `tag` is one of DDH_TAG_*.
void check_tag(int32_t tag);

}  // namespace ddhost
