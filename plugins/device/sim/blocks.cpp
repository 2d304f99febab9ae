// SPDX-License-Identifier: Apache-2.0
#include "blocks.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ddh/sdk/plugin.hpp"

namespace sim {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr unsigned char kPoison[2] = {0xA0, 0x7F};

uint64_t pages_of(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

void unmap(const Block& block) { munmap(block.begin, pages_of(block.bytes)); }

bool holds(const Block& block, const void* p) {
  return p >= static_cast<const void*>(block.begin) && p < static_cast<const void*>(block.end());
}

}  // namespace

void poison(char* begin, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) begin[i] = static_cast<char>(kPoison[i % 2]);
}

bool is_poison(const char* begin, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) {
    if (begin[i] != static_cast<char>(kPoison[i % 2])) return false;
  }
  return true;
}

Blocks::~Blocks() {
  for (const auto& [begin, block] : living_) unmap(block);
  for (const Block& block : released_) unmap(block);
}

const Block& Blocks::allocate(const ddh_alloc_args& args) {
  const uint64_t bytes = std::max<uint64_t>(args.bytes, 1);
  const uint64_t counted = args.memory == DDH_MEM_DEVICE ? bytes : 0;
  if (counted > capacity_bytes_ - used_bytes_) {
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "device sim has ", capacity_bytes_, " bytes (device.capacity_bytes), of which ",
              used_bytes_, " are in use");
  }
  void* p = mmap(nullptr, pages_of(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) ddh::fail(DDH_RESOURCE_EXHAUSTED, std::strerror(errno));
  Block block{static_cast<char*>(p), bytes, args.memory, args.name == nullptr ? "unnamed" : args.name};
  if ((args.flags & DDH_ALLOC_ZERO) == 0) poison(block.begin, bytes);
  used_bytes_ += counted;
  return living_.emplace(block.begin, std::move(block)).first->second;
}

std::string Blocks::release(void* begin) {
  const auto at = living_.find(static_cast<const char*>(begin));
  if (at == living_.end()) return "";
  const Block block = at->second;
  living_.erase(at);
  if (block.memory == DDH_MEM_DEVICE) used_bytes_ -= block.bytes;
  poison(block.begin, block.bytes);
  quarantine_bytes_ += block.bytes;
  released_.push_back(block);
  if (quarantine_bytes_ <= quarantine_limit_bytes_) return "";
  std::string sentence = damaged();
  while (quarantine_bytes_ > quarantine_limit_bytes_) {
    quarantine_bytes_ -= released_.front().bytes;
    unmap(released_.front());
    released_.pop_front();
  }
  return sentence;
}

const Block* Blocks::find(const void* p) const {
  auto at = living_.upper_bound(static_cast<const char*>(p));
  if (at == living_.begin()) return nullptr;
  --at;
  return holds(at->second, p) ? &at->second : nullptr;
}

const Block* Blocks::find_released(const void* p) const {
  for (const Block& block : released_) {
    if (holds(block, p)) return &block;
  }
  return nullptr;
}

std::string Blocks::damaged() {
  for (Block& block : released_) {
    if (is_poison(block.begin, block.bytes)) continue;
    poison(block.begin, block.bytes);
    return ddh::str("'", block.name, "' was written after it was released; keep the block until its last use is done");
  }
  return "";
}

}  // namespace sim
