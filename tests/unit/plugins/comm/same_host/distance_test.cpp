// SPDX-License-Identifier: Apache-2.0
//
// Copies into staging, and the distance of cores that decides how they are made.
#include "comm/same_host/distance.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <vector>

using same_host::PeerDistance;
using same_host::stage_bytes;

TEST_CASE("a copy into staging is whole and no longer, past the caches and not, aligned and not") {
  constexpr uint64_t kMost = 40'000, kAround = 64;
  std::vector<std::byte> from(kMost + kAround);
  std::mt19937 random(3);
  for (std::byte& byte : from) byte = static_cast<std::byte>(random() % 255 + 1);
  struct alignas(64) Staging {
    std::array<std::byte, kMost + 2 * kAround> bytes{};
  };
  for (const bool bypasses : {false, true})
    for (const uint64_t n : {uint64_t{0}, uint64_t{1}, uint64_t{16'383}, uint64_t{16'384}, uint64_t{16'401}, kMost})
      for (const uint64_t to_shift : {uint64_t{0}, uint64_t{4}})
        for (const uint64_t from_shift : {uint64_t{0}, uint64_t{3}}) {
          INFO(n << " bytes, past the caches: " << bypasses << ", shifts " << to_shift << ' ' << from_shift);
          Staging to;
          stage_bytes(to.bytes.data() + kAround + to_shift, from.data() + from_shift, n, bypasses);
          Staging expected;
          if (n > 0) std::memcpy(expected.bytes.data() + kAround + to_shift, from.data() + from_shift, n);
          CHECK(std::memcmp(&to, &expected, sizeof to) == 0);
        }
}

TEST_CASE("a line of this core's own cache is not far") {
  PeerDistance distance;
  CHECK_FALSE(distance.is_far());
  alignas(64) std::array<std::byte, 64> line{};
  for (int i = 0; i < 50; ++i) distance.sample(line.data());
  CHECK_FALSE(distance.is_far());
}

TEST_CASE("the names of comm.bypass_caches have their meaning") {
  CHECK(same_host::bypass_named("always") == same_host::BypassCaches::always);
  CHECK(same_host::bypass_named("never") == same_host::BypassCaches::never);
  CHECK(same_host::bypass_named("auto") == same_host::BypassCaches::where_far);
}
