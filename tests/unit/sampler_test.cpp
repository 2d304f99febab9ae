// SPDX-License-Identifier: Apache-2.0
//
// The order of samples: a permutation that ranks and micro-batches cut without overlap.
#include "data/sampler.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <set>

#include "ddh/sdk/plugin.hpp"

using namespace ddhost;

TEST_CASE("a permutation takes every index once and differs between epochs and seeds") {
  const auto n = GENERATE(uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{64}, uint64_t{1000}, uint64_t{4097});
  const Permutation first(n, 7, 0), next_epoch(n, 7, 1), other_seed(n, 8, 0);
  std::set<uint64_t> seen;
  uint64_t moved = 0, same_as_epoch = 0, same_as_seed = 0;
  for (uint64_t i = 0; i < n; ++i) {
    seen.insert(first(i));
    moved += first(i) != i;
    same_as_epoch += first(i) == next_epoch(i);
    same_as_seed += first(i) == other_seed(i);
  }
  CHECK(seen.size() == n);
  CHECK(*seen.rbegin() == n - 1);
  if (n >= 64) {
    CHECK(moved > n * 9 / 10);
    CHECK(same_as_epoch < n / 10);
    CHECK(same_as_seed < n / 10);
  }
}

TEST_CASE("a changed world size sees the same samples in the same step") {
  const uint64_t seed = 1337;
  const auto samples_of_step = [&](uint64_t world, uint64_t micro, uint64_t accum, int64_t step) {
    const Sampler sampler(10000, seed, {micro, world, accum}, "");
    std::multiset<int64_t> out;
    for (uint64_t m = 0; m < accum; ++m) {
      for (uint64_t r = 0; r < world; ++r) {
        for (const int64_t s : sampler.samples(step, m, r)) out.insert(s);
      }
    }
    return out;
  };
  for (const int64_t step : {1, 2, 500}) {
    const auto one = samples_of_step(1, 12, 1, step);
    CHECK(one.size() == 12);
    CHECK(one == samples_of_step(2, 6, 1, step));
    CHECK(one == samples_of_step(3, 2, 2, step));
    CHECK(one == samples_of_step(4, 1, 3, step));
  }
}

TEST_CASE("a sample order is read from a file and repeats") {
  const std::string path = "sampler_test_order.bin";
  const std::vector<int64_t> order = {5, 4, 3, 2, 1, 0};
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(order.data()), 48);
  const Sampler sampler(6, 0, {2, 2, 1}, path);
  CHECK(sampler.samples(1, 0, 0) == std::vector<int64_t>{5, 4});
  CHECK(sampler.samples(1, 0, 1) == std::vector<int64_t>{3, 2});
  CHECK(sampler.samples(2, 0, 1) == std::vector<int64_t>{5, 4});
  CHECK_THROWS_WITH(Sampler(5, 0, {1, 1, 1}, path), Catch::Contains("entry 0") && Catch::Contains("0 to 4"));
  std::remove(path.c_str());
  CHECK_THROWS_WITH(Sampler(6, 0, {1, 1, 1}, path), Catch::Contains("data.order"));
}

TEST_CASE("fewer samples than the ranks take at once is refused") {
  CHECK_THROWS_WITH(Sampler(7, 0, {4, 2, 1}, ""), Catch::Contains("7 samples") && Catch::Contains("fewer ranks"));
}
