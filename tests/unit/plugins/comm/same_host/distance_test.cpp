// SPDX-License-Identifier: Apache-2.0
//
// Copies into staging, and the distance of cores that decides how they are made.
#include "comm/same_host/distance.hpp"

#include <algorithm>
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

TEST_CASE("peers are far if a third of the last samples are, of three at least") {
  constexpr int64_t kNear = 40, kFar = 130;
  PeerDistance distance;
  const auto after = [&](const std::vector<int64_t>& samples) {
    for (const int64_t ns : samples) distance.add(ns);
    return distance.is_far();
  };
  CHECK_FALSE(distance.is_far());
  CHECK_FALSE(after({kFar, kFar}));
  CHECK(after({kNear}));
  CHECK(after({kNear, kNear, kNear, kFar}));  // 3 of the last 7
  CHECK_FALSE(after({kNear}));                // 2 of them
  CHECK_FALSE(after({kNear, kNear, kNear, kNear, 0}));
  CHECK(after({kFar, kFar, kFar}));
  CHECK(distance.samples() == 16);
}

TEST_CASE("the time of a line of this core's own cache is short") {
  alignas(64) std::array<std::byte, 64> line{};
  int64_t least_ns = INT64_MAX;  // others may use this core
  for (int i = 0; i < 101; ++i) least_ns = std::min(least_ns, PeerDistance::time_of(line.data()));
  CHECK(least_ns < 60);
}

TEST_CASE("the names of comm.bypass_caches have their meaning") {
  CHECK(same_host::bypass_named("always") == same_host::BypassCaches::always);
  CHECK(same_host::bypass_named("never") == same_host::BypassCaches::never);
  CHECK(same_host::bypass_named("auto") == same_host::BypassCaches::automatic);
}
