// SPDX-License-Identifier: Apache-2.0
//
// Memory for blocks that are kept: they lie one after the other, and take little more than their own pages.
#include "ddh/sdk/memory/block_space.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <string>

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

uint64_t resident_bytes() {
  uint64_t pages = 0;
  std::ifstream in("/proc/self/statm");
  in >> pages >> pages;
  return pages * 4096;
}

// What cutting and filling blocks adds to the process.
uint64_t bytes_of_blocks(uint64_t bytes, int n) {
  ddh::BlockSpace space;
  const uint64_t before = resident_bytes();
  for (int i = 0; i < n; ++i) std::memset(space.cut(bytes), i + 1, bytes);
  return resident_bytes() - before;
}

}  // namespace

TEST_CASE("blocks lie one after the other, and a later one fills what an earlier one left", "[unit]") {
  ddh::BlockSpace space;
  auto* const first = static_cast<char*>(space.cut(6 * kMiB));
  CHECK(reinterpret_cast<uintptr_t>(first) % (2 * kMiB) == 0);
  CHECK(space.cut(64) == first + 6 * kMiB);
  for (int i = 0; i < 3; ++i) space.cut(7 * kMiB);              // 27 MiB of 32 MiB
  auto* const other = static_cast<char*>(space.cut(7 * kMiB));  // in another range
  CHECK((other < first || other >= first + 32 * kMiB));
  CHECK(space.cut(kMiB) == first + 27 * kMiB + 64);
}

TEST_CASE("blocks take little more memory than their bytes, also where they are no multiple of a huge page", "[unit]") {
  for (const auto& [bytes, n] :
       {std::pair(2 * kMiB + 64, 24), std::pair(5 * kMiB + 64, 12), std::pair(kMiB / 2 + 64, 90),
        std::pair(9 * kMiB + 64, 8), std::pair(33 * kMiB + 64, 3)}) {
    INFO(bytes << " bytes, " << n << " blocks");
    const uint64_t all = bytes * static_cast<uint64_t>(n);
    // Two ranges may end within a huge page; the rest is the test's own heap.
    CHECK(bytes_of_blocks(bytes, n) <= all + 5 * kMiB);
  }
}
