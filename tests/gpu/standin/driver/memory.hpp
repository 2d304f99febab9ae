// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/standin/driver/memory.hpp: memory of the stand-in's GPUs and pinned memory of the host. Addresses of device
// memory can't be read by the host: they lie in a reservation without access. Work on streams reaches the same memory
// through a second mapping. New and freed memory holds NaNs.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace standin {

class DeviceMemory {
 public:
  explicit DeviceMemory(uint64_t capacity_bytes);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();

  // 0: no room.
  uint64_t allocate(uint64_t bytes);
  // false: no block begins there.
  bool release(uint64_t address);
  // The memory behind [address, address + bytes), for work on streams; nullptr: it is not inside of one block.
  [[nodiscard]] void* reach(uint64_t address, uint64_t bytes) const;
  // The address lies among those of this GPU, whether allocated or not.
  [[nodiscard]] bool owns(uint64_t address) const { return address >= begin() && address < begin() + capacity_bytes_; }
  [[nodiscard]] uint64_t capacity_bytes() const { return capacity_bytes_; }
  [[nodiscard]] uint64_t free_bytes() const { return capacity_bytes_ - used_bytes_; }

 private:
  [[nodiscard]] uint64_t begin() const { return reinterpret_cast<uint64_t>(addresses_); }

  const uint64_t capacity_bytes_;
  uint64_t used_bytes_ = 0;
  char* addresses_ = nullptr;            // without access
  char* content_ = nullptr;              // the same memory, for work
  std::map<uint64_t, uint64_t> blocks_;  // offset, bytes as asked for
};

// Host memory that work on every GPU reaches at its own address.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory();
  void* allocate(uint64_t bytes);
  bool release(void* p);
  [[nodiscard]] bool holds(uint64_t address, uint64_t bytes) const;

 private:
  std::map<uint64_t, uint64_t> blocks_;  // address, bytes
};

}  // namespace standin
