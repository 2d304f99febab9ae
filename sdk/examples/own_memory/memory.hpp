// SPDX-License-Identifier: Apache-2.0
//
// memory.hpp: the blocks of the device own_memory. Where a device of yours has memory, its allocator stands here.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <new>

#include "ddh/sdk/plugin.hpp"

namespace own_memory {

// Every function is callable from any thread: `allocate` and `release` of a device are [any].
class Memory {
 public:
  explicit Memory(uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    for (const auto& [begin, block] : blocks_) free_block(begin);
  }

  void* allocate(const ddh_alloc_args& args) {
    const bool is_device = args.memory == DDH_MEM_DEVICE;  // else DDH_MEM_PINNED, which is the host's memory
    const std::lock_guard lock(mutex_);
    if (is_device && args.bytes > capacity_bytes_ - used_bytes_)
      ddh::fail(DDH_RESOURCE_EXHAUSTED, "the device has ", capacity_bytes_, " bytes (device.capacity_bytes), of which ",
                used_bytes_, " are in use");  // the host adds what the block is for, and what helps
    auto* const begin = static_cast<std::byte*>(::operator new(args.bytes, kAlignment));  // throws std::bad_alloc
    // Without DDH_ALLOC_ZERO the content is undefined. NaNs show a user who reads it, where zeros would not.
    std::memset(begin, (args.flags & DDH_ALLOC_ZERO) != 0 ? 0 : 0xFF, args.bytes);
    blocks_.emplace(begin, Block{args.bytes, is_device});
    if (is_device) used_bytes_ += args.bytes;
    return begin;
  }

  void release(void* p) {
    if (p == nullptr) return;
    const std::lock_guard lock(mutex_);
    const auto at = blocks_.find(static_cast<std::byte*>(p));
    if (at == blocks_.end()) return;  // an error has no way out of here; the host checks what it releases
    if (at->second.is_device) used_bytes_ -= at->second.bytes;
    free_block(at->first);
    blocks_.erase(at);
  }

  // Whether a block of device memory has all of [p, p + bytes).
  [[nodiscard]] bool is_device(const void* p, uint64_t bytes) const {
    const std::lock_guard lock(mutex_);
    const auto* const begin = static_cast<const std::byte*>(p);
    const auto after = blocks_.upper_bound(begin);
    if (after == blocks_.begin()) return false;
    const auto& [first, block] = *std::prev(after);
    return block.is_device && bytes <= block.bytes && static_cast<uint64_t>(begin - first) <= block.bytes - bytes;
  }

  [[nodiscard]] uint64_t capacity_bytes() const { return capacity_bytes_; }
  [[nodiscard]] uint64_t free_bytes() const {
    const std::lock_guard lock(mutex_);
    return capacity_bytes_ - used_bytes_;
  }

 private:
  static constexpr std::align_val_t kAlignment{256};  // as ddh.alloc promises
  struct Block {
    uint64_t bytes;
    bool is_device;
  };
  static void free_block(std::byte* begin) { ::operator delete(begin, kAlignment); }

  const uint64_t capacity_bytes_;
  mutable std::mutex mutex_;
  uint64_t used_bytes_ = 0;
  std::map<std::byte*, Block, std::less<>> blocks_;
};

}  // namespace own_memory
