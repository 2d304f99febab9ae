// SPDX-License-Identifier: Apache-2.0
//
// The order of samples: a permutation that ranks and micro-batches cut without overlap.
#include "engine/data/sample_order.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <set>

#include "ddh/sdk/plugin.hpp"
#include "engine/data/train_order.hpp"

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
    const SampleOrder order(10000, seed, {micro, world, accum}, "");
    std::multiset<int64_t> out;
    for (uint64_t m = 0; m < accum; ++m) {
      for (uint64_t r = 0; r < world; ++r) {
        for (const int64_t s : order.samples(step, m, r)) out.insert(s);
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
  const std::string path = "sample_order_test.bin";
  const std::vector<int64_t> listed = {5, 4, 3, 2, 1, 0};
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(listed.data()), 48);
  const SampleOrder order(6, 0, {2, 2, 1}, path);
  CHECK(order.samples(1, 0, 0) == std::vector<int64_t>{5, 4});
  CHECK(order.samples(1, 0, 1) == std::vector<int64_t>{3, 2});
  CHECK(order.samples(2, 0, 1) == std::vector<int64_t>{5, 4});
  CHECK_THROWS_WITH(SampleOrder(5, 0, {1, 1, 1}, path), Catch::Contains("entry 0") && Catch::Contains("0 to 4"));
  std::remove(path.c_str());
  CHECK_THROWS_WITH(SampleOrder(6, 0, {1, 1, 1}, path), Catch::Contains("data.order"));
}

TEST_CASE("fewer samples than the ranks take at once is refused") {
  CHECK_THROWS_WITH(SampleOrder(7, 0, {4, 2, 1}, ""), Catch::Contains("7 samples") && Catch::Contains("fewer ranks"));
}

TEST_CASE("an epoch's last step may be smaller: each sample once, the first ranks full, the last ones without any") {
  const SampleOrder order(29, 7, {4, 2, 2}, "", EpochEnd::shorten);  // 16 a step: 16 and 13
  for (const int64_t epoch : {0, 1}) {
    std::set<int64_t> seen;
    for (const int64_t step : {1, 2})
      for (uint64_t m = 0; m < 2; ++m)
        for (uint64_t r = 0; r < 2; ++r)
          for (const int64_t s : order.samples(2 * epoch + step, m, r)) CHECK(seen.insert(s).second);
    CHECK(seen.size() == 29);
  }
  CHECK(order.count(1) == 16);
  CHECK(order.count(2) == 13);
  CHECK(order.samples(2, 1, 0).size() == 4);
  CHECK(order.samples(2, 1, 1).size() == 1);
  CHECK_FALSE(order.has_empty(2));

  const SampleOrder small(3, 7, {4, 2, 2}, "", EpochEnd::shorten);
  CHECK(small.count(1) == 3);
  CHECK(small.samples(1, 0, 0).size() == 3);
  CHECK(small.samples(1, 0, 1).empty());
  CHECK(small.has_empty(1));
  const SampleOrder twelve(28, 7, {4, 2, 2}, "", EpochEnd::shorten);
  CHECK_FALSE(twelve.has_empty(1));
  CHECK(twelve.has_empty(2));
  CHECK_THROWS_WITH(SampleOrder(0, 7, {1, 1, 1}, "", EpochEnd::shorten), Catch::Contains("no samples"));
}

TEST_CASE("an epoch's rest may be left out, another one each time") {
  const SampleOrder order(29, 7, {4, 2, 2}, "", EpochEnd::drop);
  const Permutation second_epoch(29, 7, 1);
  CHECK(order.count(2) == 16);
  for (uint64_t i = 0; i < 4; ++i) CHECK(order.samples(2, 0, 0)[i] == static_cast<int64_t>(second_epoch(i)));
  CHECK_THROWS_WITH(SampleOrder(15, 0, {4, 2, 2}, "", EpochEnd::drop), Catch::Contains("drop_last"));
}

TEST_CASE("programs take turns, each through its own samples without a gap") {
  const SampleOrder a(100, 1, {4, 1, 1}, ""), b(50, 2, {4, 1, 1}, "");
  const TrainOrder order({0, 2, 0}, {{0, a}, {2, b}});
  const std::vector<int32_t> programs = {0, 2, 0, 0, 2, 0, 0};
  const std::vector<int64_t> own_steps = {1, 1, 2, 3, 2, 4, 5};
  for (size_t i = 0; i < programs.size(); ++i) {
    const auto step = static_cast<int64_t>(i) + 1;
    CHECK(order.program(step) == programs[i]);
    CHECK(order.samples(step, 0, 0) == (programs[i] == 0 ? a : b).samples(own_steps[i], 0, 0));
  }
}

namespace {
// The samples of a step, in global order.
std::vector<int64_t> step_of(const SampleOrder& order, int64_t step) {
  std::vector<int64_t> out;
  for (uint64_t m = 0; m < order.cut().grad_accum_steps; ++m) {
    for (uint64_t r = 0; r < order.cut().world_size; ++r) {
      const std::vector<int64_t> more = order.samples(step, m, r);
      out.insert(out.end(), more.begin(), more.end());
    }
  }
  return out;
}
}  // namespace

TEST_CASE("an order that goes on after a step is the order from the start, in every epoch and with every end") {
  const auto end = GENERATE(EpochEnd::join, EpochEnd::drop, EpochEnd::shorten);
  const SampleOrder whole(50, 7, {2, 2, 3}, "", end);  // 4 steps and a rest of 2 in an epoch
  for (int64_t steps = 0; steps <= 14; ++steps) {
    SampleOrder resumed(50, 7, {3, 4, 1}, "", end);  // the same samples of a step
    resumed.start_after(steps, whole.begin_after(steps));
    bool any_empty = false;
    for (int64_t step = steps + 1; step <= steps + 11; ++step) {
      INFO("after step " << steps << ", step " << step);
      CHECK(step_of(resumed, step) == step_of(whole, step));
      any_empty = any_empty || resumed.samples(step, 0, 3).empty();  // the last rank
      CHECK(resumed.has_empty(step) == any_empty);
      CHECK(resumed.begin_after(step) == whole.begin_after(step));
    }
  }
}

TEST_CASE("an order goes on at the exact sample when a step takes more or fewer than before") {
  const auto end = GENERATE(EpochEnd::join, EpochEnd::drop, EpochEnd::shorten);
  const SampleOrder before(50, 7, {2, 2, 3}, "", end);
  SampleOrder after(50, 7, {1, 5, 1}, "", end);
  after.start_after(6, before.begin_after(6));  // in the second epoch
  SampleOrder one_by_one(50, 7, {1, 1, 1}, "", EpochEnd::join);
  const int64_t first = step_of(before, 7).front();
  CHECK(step_of(after, 7).front() == first);
  std::vector<int64_t> rest;  // of the second epoch, from there on
  for (int64_t step = 7; rest.size() + 5 <= 26; ++step)
    for (const int64_t sample : step_of(after, step)) rest.push_back(sample);
  for (size_t i = 0; i < rest.size(); ++i)
    CHECK(rest[i] == step_of(one_by_one, static_cast<int64_t>(before.begin_after(6) + i) + 1).front());
}
