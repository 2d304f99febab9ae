// SPDX-License-Identifier: Apache-2.0
//
// tests/conformance/comm_world.hpp: a world of ranks over a transport, driven as the host drives it: loop (threads) and shm
// (processes), or with DDHOST_COMM=./mine.so, or a name, that transport instead. Features that a transport lacks are
// skipped, and the reason is printed.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>

#include "conformance/comm_rank.hpp"
#include "fixtures/harness/cpu_device.hpp"

namespace ddhost::test {

inline std::vector<std::string> transports() {
  const char* given = std::getenv("DDHOST_COMM");
  return given != nullptr ? std::vector<std::string>{given} : std::vector<std::string>{"loop", "shm"};
}

inline void check_world(const std::string& transport, int world, const std::function<void(CommRank&)>& body,
                        uint32_t reduce_block = 1) {
  const Outcome outcome = run_world(transport, world, body, reduce_block);
  INFO(transport << ", world " << world << ": " << outcome.sentence);
  CHECK((outcome.exit_code == 0 || outcome.exit_code == kLeftOut));
}

// Values whose sum depends on the order of the additions; index -1 is the initial value of a fold.
inline float value_in_order(int32_t rank, uint64_t i) {
  const int32_t kind = (rank + 3) % 3;
  const float magnitude = kind == 0 ? 1e7F : kind == 1 ? -1e7F : 1.0F;
  return magnitude * (1.0F + 1e-3F * static_cast<float>((i * 7 + static_cast<uint64_t>(rank + 1) * 13) % 101));
}
// For transports that promise no order: small integers, whose sums are exact in every order.
inline float value(const CommRank& r, int32_t rank, uint64_t i) {
  if (r.has(DDH_COMM_ORDERED_SUM)) return value_in_order(rank, i);
  return static_cast<float>((i * 7 + static_cast<uint64_t>(rank + 1) * 13) % 101);
}

inline float sum_in_order(const CommRank& r, uint64_t i, int32_t block, bool from_start = false) {
  float total = from_start ? value(r, -1, i) : 0;
  for (int32_t first = 0; first < r.world; first += block) {
    float sum = value(r, first, i);
    for (int32_t p = first + 1; p < std::min(r.world, first + block); ++p) sum += value(r, p, i);
    total = first == 0 && !from_start ? sum : total + sum;
  }
  return total;
}

inline void expect(bool ok, const char* what, uint64_t numel) {
  if (!ok) ddh::fail(DDH_INTERNAL, what, " is wrong with ", numel, " elements");
}

inline const std::vector<uint64_t> kSizes = {0, 1, 3, 63, 64, 65, 255, 257, 1000, 70'000};
inline std::vector<float> mine(const CommRank& r, uint64_t n) {
  std::vector<float> x(n + 1);
  for (uint64_t i = 0; i < n; ++i) x[i] = value(r, r.rank, i);
  return x;
}

}  // namespace ddhost::test
