// SPDX-License-Identifier: Apache-2.0
//
// benchmarks/pages.hpp: memory of a benchmark in huge pages where the system gives them.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <memory>

#include "ddh/sdk/plugin.hpp"

namespace ddhost::bench {

struct Unmap {
  uint64_t bytes;
  void operator()(void* p) const { munmap(p, bytes); }
};
using Pages = std::unique_ptr<void, Unmap>;

// Maps memory for `bytes`, which the system fills with zeros at the first access. Fails if it has too little. The system
// places mappings side by side. Addresses that no memory backs keep up to 31 of them from lying a multiple of 128 MiB apart,
// where AMD's L1 takes one for the other, and a pass over both takes twice as long.
inline Pages pages(uint64_t bytes) {
  constexpr uint64_t kAlias = uint64_t{128} << 20, kApart = uint64_t{4} << 20;
  const uint64_t mapped = (bytes + kAlias - 1) / kAlias * kAlias + kApart;
  void* p = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Pages out(p == MAP_FAILED ? nullptr : p, Unmap{mapped});
  if (out == nullptr || mprotect(p, bytes, PROT_READ | PROT_WRITE) != 0)
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "no ", bytes, " bytes; give a smaller size");
  madvise(p, bytes, MADV_HUGEPAGE);
  return out;
}

// Zeros that are in memory.
class Floats {
 public:
  explicit Floats(uint64_t numel) : memory_(pages(numel * sizeof(float))), numel_(numel) {
    std::memset(memory_.get(), 0, numel * sizeof(float));
  }
  [[nodiscard]] float* data() const { return static_cast<float*>(memory_.get()); }
  [[nodiscard]] uint64_t size() const { return numel_; }
  float& operator[](uint64_t i) const { return data()[i]; }

 private:
  Pages memory_;
  uint64_t numel_;
};

}  // namespace ddhost::bench
