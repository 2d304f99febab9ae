// SPDX-License-Identifier: Apache-2.0
#include "driver/memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <iterator>

namespace standin {
namespace {

constexpr uint64_t kAlign = 512;  // bytes, as cuMemAlloc's
constexpr uint64_t kPage = 4096;

uint64_t rounded(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

// 32-bit words that are signalling NaNs, and NaNs in both 16-bit formats.
void poison(char* begin, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) begin[i] = i % 2 == 0 ? '\xa0' : '\x7f';
}

}  // namespace

DeviceMemory::DeviceMemory(uint64_t capacity_bytes) : capacity_bytes_(rounded(capacity_bytes, kPage)) {
  const int fd = memfd_create("standin-gpu", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(capacity_bytes_)) != 0) return;
  const int shared = MAP_SHARED | MAP_NORESERVE;
  void* const content = mmap(nullptr, capacity_bytes_, PROT_READ | PROT_WRITE, shared, fd, 0);
  void* const addresses = mmap(nullptr, capacity_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  close(fd);
  if (content != MAP_FAILED) content_ = static_cast<char*>(content);
  if (addresses != MAP_FAILED) addresses_ = static_cast<char*>(addresses);
}

DeviceMemory::~DeviceMemory() {
  if (content_ != nullptr) munmap(content_, capacity_bytes_);
  if (addresses_ != nullptr) munmap(addresses_, capacity_bytes_);
}

uint64_t DeviceMemory::allocate(uint64_t bytes) {
  if (content_ == nullptr || addresses_ == nullptr) return 0;
  uint64_t at = 0;  // first fit
  for (const auto& [offset, size] : blocks_) {
    if (offset - at >= rounded(bytes, kAlign)) break;
    at = offset + rounded(size, kAlign);
  }
  if (bytes > capacity_bytes_ || at > capacity_bytes_ - bytes) return 0;
  blocks_[at] = bytes;
  used_bytes_ += bytes;
  poison(content_ + at, bytes);
  return begin() + at;
}

bool DeviceMemory::release(uint64_t address) {
  const auto found = owns(address) ? blocks_.find(address - begin()) : blocks_.end();
  if (found == blocks_.end()) return false;
  used_bytes_ -= found->second;
  poison(content_ + found->first, found->second);
  blocks_.erase(found);
  return true;
}

void* DeviceMemory::reach(uint64_t address, uint64_t bytes) const {
  if (!owns(address)) return nullptr;
  const uint64_t offset = address - begin();
  auto block = blocks_.upper_bound(offset);
  if (block == blocks_.begin()) return nullptr;
  --block;
  const uint64_t inside = offset - block->first;
  return inside <= block->second && bytes <= block->second - inside ? content_ + offset : nullptr;
}

PinnedMemory::~PinnedMemory() {
  for (const auto& [address, bytes] : blocks_) munmap(reinterpret_cast<void*>(address), rounded(bytes, kPage));
}

void* PinnedMemory::allocate(uint64_t bytes) {
  void* const p = mmap(nullptr, rounded(bytes, kPage), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  poison(static_cast<char*>(p), bytes);
  blocks_[reinterpret_cast<uint64_t>(p)] = bytes;
  return p;
}

bool PinnedMemory::release(void* p) {
  const auto found = blocks_.find(reinterpret_cast<uint64_t>(p));
  if (found == blocks_.end()) return false;
  munmap(p, rounded(found->second, kPage));
  blocks_.erase(found);
  return true;
}

bool PinnedMemory::holds(uint64_t address, uint64_t bytes) const {
  auto block = blocks_.upper_bound(address);
  if (block == blocks_.begin()) return false;
  --block;
  const uint64_t inside = address - block->first;
  return inside <= block->second && bytes <= block->second - inside;
}

}  // namespace standin
