// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/activations.hpp: the allocator of LibTorch's CPU tensors. LibTorch returns large blocks to the system
// and maps them again at every step. This allocator keeps its pages in free lists by size, uses huge pages for large
// blocks, and counts a rank's memory under DDH_TAG_ACT.
//
// LibTorch has one CPU allocator per process, so all ranks of a process share this object.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <array>
#include <bit>
#include <mutex>
#include <vector>

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
    Header* next;  // in its free list
    uint64_t bytes;
    uint32_t size_class;
  };
  static constexpr uint64_t kSmallestBytes = 64;
  static constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
  static constexpr uint64_t kSlabBytes = uint64_t{4} << 20;  // small blocks are cut from slabs of this size

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
    if (free_[c] == nullptr) refill(c);
    Header* header = free_[c];
    free_[c] = header->next;
    return header;
  }

  void refill(uint32_t c) {
    const uint64_t bytes = class_bytes(c), stride = bytes + sizeof(Header);
    const uint64_t count = stride >= kSlabBytes / 8 ? 1 : kSlabBytes / stride;
    auto* at = static_cast<char*>(map(count * stride));
    for (uint64_t i = 0; i < count; ++i, at += stride) {
      free_[c] = new (at) Header{this, free_[c], bytes, c};
    }
  }

  static void* map(uint64_t bytes) {
    const uint64_t rounded = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    void* p = mmap(nullptr, rounded + kHugePageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    const uintptr_t aligned = (reinterpret_cast<uintptr_t>(p) + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    if (bytes >= kHugePageBytes) madvise(reinterpret_cast<void*>(aligned), rounded, MADV_HUGEPAGE);
    return reinterpret_cast<void*>(aligned);
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
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
