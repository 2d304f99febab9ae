// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/activations.hpp: the allocator of LibTorch's CPU tensors. LibTorch returns large blocks to the system
// and maps them again at every step. This allocator keeps its blocks in free lists by size, uses huge pages
// (block_space.hpp), and counts a rank's memory under DDH_TAG_ACT.
//
// LibTorch has one CPU allocator per process, so all ranks of a process share this object.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>
#include <vector>

#include "ddh/sdk/memory/block_space.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Counts the calling thread's tensors for a rank during its lifetime. Every call of a model into LibTorch needs one.
class ActivationScope {
  struct Count {
    const Host* host = nullptr;
    int64_t pending_bytes = 0;
  };

 public:
  explicit ActivationScope(const Host& host) : before_(current()) { current() = {&host, 0}; }
  ActivationScope(const ActivationScope&) = delete;
  ActivationScope& operator=(const ActivationScope&) = delete;
  ~ActivationScope() {
    flush();
    current() = before_;
  }

  // The rank for which the calling thread counts tensors; nullptr: none.
  static const Host* counted_host() { return current().host; }
  // Counts the tensors of a helper thread for `host` during its lifetime. Does nothing if the thread already counts for
  // it.
  class Joined {
   public:
    explicit Joined(const Host* host) : before_(current()), joins_(host != current().host) {
      if (joins_) current() = {host, 0};
    }
    Joined(const Joined&) = delete;
    Joined& operator=(const Joined&) = delete;
    ~Joined() {
      if (!joins_) return;
      flush();
      current() = before_;
    }

   private:
    const Count before_;
    const bool joins_;
  };

  static void add(int64_t bytes) {
    Count& c = current();
    if (c.host == nullptr) return;
    c.pending_bytes += bytes;
    if (c.pending_bytes >= kFlushBytes || c.pending_bytes <= -kFlushBytes) flush();
  }

 private:
  static constexpr int64_t kFlushBytes = 64 * 1024;  // precision of the peak
  static Count& current() {
    static thread_local Count count;
    return count;
  }
  static void flush() {
    Count& c = current();
    if (c.host != nullptr && c.pending_bytes != 0) c.host->alloc->account(c.host->h, DDH_TAG_ACT, c.pending_bytes);
    c.pending_bytes = 0;
  }
  const Count before_;
};

class ActivationAllocator final : public c10::Allocator {
 public:
  // Makes it LibTorch's CPU allocator. Further calls in a process have no effect.
  static void install() {
    static ActivationAllocator allocator;
    static const bool installed = (c10::SetCPUAllocator(&allocator, /*priority=*/1), true);
    (void)installed;
  }

  c10::DataPtr allocate(size_t n) override {
    if (n == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    Header* header = take(size_class(n));
    ActivationScope::add(static_cast<int64_t>(header->bytes));
    return {header + 1, header + 1, &release, c10::Device(c10::DeviceType::CPU)};
  }
  // The memory that a tensor of n bytes takes, which estimates count too.
  static double block_bytes(double n) {
    return n > 0 ? static_cast<double>(class_bytes(size_class(static_cast<uint64_t>(n)))) : 0;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* dest, const void* src, size_t count) const override { default_copy_data(dest, src, count); }

 private:
  // Precedes every block; it has the size of a cache line, so data stays aligned.
  struct alignas(64) Header {
    ActivationAllocator* owner;
    Header* next;         // in its free list
    uint64_t bytes;       // for which it is counted
    uint32_t size_class;  // of the block
  };
  static constexpr uint64_t kSmallestBytes = 64;
  static constexpr uint64_t kRunBytes = uint64_t{16} << 10;  // small blocks are cut from runs of this size

  static constexpr uint64_t kLargeBytes = uint64_t{1} << 20;
  static constexpr uint32_t kMostLarger = 8;  // classes: four times the size

  // Four classes for each power of two: at most a quarter of a block is wasted.
  static uint32_t size_class(uint64_t n) {
    if (n <= kSmallestBytes) return 0;
    const uint64_t units = (n + kSmallestBytes - 1) / kSmallestBytes;  // >= 2
    const auto log = static_cast<uint32_t>(std::bit_width(units - 1)) - 1;
    const uint64_t base = uint64_t{1} << log, step = base >= 4 ? base / 4 : 1;
    const uint64_t quarter = base >= 4 ? (units - base + step - 1) / step : (units - base) * 4 / base;
    return log * 4 + static_cast<uint32_t>(quarter);
  }
  static uint64_t class_bytes(uint32_t c) {
    const uint64_t base = uint64_t{1} << (c / 4);
    return (base + (base * (c % 4) + 3) / 4) * kSmallestBytes;
  }

  Header* take(uint32_t c) {
    const std::lock_guard lock(mutex_);
    const uint32_t from = class_with_a_block(c);
    Header* header = free_[from];
    free_[from] = header->next;
    header->bytes = class_bytes(c);
    return header;
  }

  // A large block may serve a smaller tensor; its other pages are there already.
  uint32_t class_with_a_block(uint32_t c) {
    if (free_[c] != nullptr) return c;
    for (uint32_t larger = c + 1; class_bytes(c) >= kLargeBytes && larger <= c + kMostLarger; ++larger)
      if (free_[larger] != nullptr) return larger;
    refill(c);
    return c;
  }

  // Cuts a new block, and of small ones several.
  void refill(uint32_t c) {
    const uint64_t bytes = class_bytes(c), stride = bytes + sizeof(Header);
    const uint64_t count = std::max<uint64_t>(1, kRunBytes / stride);
    auto* at = static_cast<char*>(space_.cut(count * stride));
    for (uint64_t i = 0; i < count; ++i, at += stride) {
      free_[c] = new (at) Header{this, free_[c], bytes, c};
    }
  }

  static void release(void* data) {
    if (data == nullptr) return;
    auto* header = static_cast<Header*>(data) - 1;
    ActivationScope::add(-static_cast<int64_t>(header->bytes));
    ActivationAllocator& self = *header->owner;
    const std::lock_guard lock(self.mutex_);
    header->next = self.free_[header->size_class];
    self.free_[header->size_class] = header;
  }

  std::mutex mutex_;
  std::array<Header*, 256> free_{};  // by size class
  BlockSpace space_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
