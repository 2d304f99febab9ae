// SPDX-License-Identifier: Apache-2.0
//
// benchmarks/pages.hpp: memory of a benchmark in huge pages where the system gives them.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <memory>

#include "ddh/sdk/plugin.hpp"

namespace ddhost::bench {

struct Unmap {
  uint64_t bytes;
  void operator()(void* p) const { munmap(p, bytes); }
};
using Pages = std::unique_ptr<void, Unmap>;

// Maps memory for `bytes`, which the system fills with zeros at the first access. Fails if it has too little.
inline Pages pages(uint64_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) ddh::fail(DDH_RESOURCE_EXHAUSTED, "no ", bytes, " bytes; give a smaller size");
  madvise(p, bytes, MADV_HUGEPAGE);
  return {p, Unmap{bytes}};
}

}  // namespace ddhost::bench
