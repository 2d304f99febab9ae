// SPDX-License-Identifier: Apache-2.0
//
// blocks.hpp: the device's memory: pages of the host with a capacity. New blocks contain signalling NaNs unless zeros
// are requested. Released blocks are filled with them and kept for a while, to detect a use after release.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "ddh/service/alloc.h"

namespace sim {

struct Block {
  char* begin = nullptr;
  uint64_t bytes = 0;
  int32_t memory = DDH_MEM_DEVICE;
  std::string name;

  [[nodiscard]] const char* end() const { return begin + bytes; }
};

// Not thread-safe: the context holds its lock around each call.
class Blocks {
 public:
  Blocks(uint64_t capacity_bytes, uint64_t quarantine_bytes)
      : capacity_bytes_(capacity_bytes), quarantine_limit_bytes_(quarantine_bytes) {}
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;
  ~Blocks();

  // Throws ddh::Error RESOURCE_EXHAUSTED: over the capacity (which counts only DDH_MEM_DEVICE), or the system's reason.
  const Block& allocate(const ddh_alloc_args& args);
  // Poisons a block and puts it into quarantine. Blocks that leave quarantine are returned to the system. Returns the
  // result of damaged() for those.
  std::string release(void* begin);

  // The allocated or released block that contains `p`; nullptr: none.
  [[nodiscard]] const Block* find(const void* p) const;
  [[nodiscard]] const Block* find_released(const void* p) const;
  // An error message if a block in quarantine no longer contains the poison, else "". Each block is reported once.
  std::string damaged();

  [[nodiscard]] uint64_t capacity_bytes() const { return capacity_bytes_; }
  [[nodiscard]] uint64_t used_bytes() const { return used_bytes_; }

 private:
  const uint64_t capacity_bytes_, quarantine_limit_bytes_;
  uint64_t used_bytes_ = 0, quarantine_bytes_ = 0;
  std::map<const char*, Block> living_;
  std::deque<Block> released_;  // oldest first
};

// Fills with a pattern whose 32-bit words are signalling NaNs, and whose 16-bit halves are NaNs in both formats.
void poison(char* begin, uint64_t bytes);
bool is_poison(const char* begin, uint64_t bytes);

}  // namespace sim
