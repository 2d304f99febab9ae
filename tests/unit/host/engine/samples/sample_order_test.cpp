// SPDX-License-Identifier: Apache-2.0
//
// The order of samples: a permutation that ranks and micro-batches cut without overlap.
#include "engine/samples/sample_order.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <set>

#include "ddh/sdk/plugin.hpp"
#include "engine/samples/train_order.hpp"

using namespace ddhost;

namespace {

std::vector<int64_t> samples_of(const TrainOrder& order, const TrainStep& step, uint64_t micro_batch, uint64_t rank) {
  BatchSamples batch;
  order.fill(batch, step, micro_batch, rank);
  return batch.samples;
}

// Steps of one cut from the begin, counted from 1.
class Steps {
 public:
  Steps(uint64_t n_samples, uint64_t seed, SampleCut cut, const std::string& file, EpochEnd end = EpochEnd::join)
      : order_(n_samples, seed, file, end), cut_(cut) {
    order_.require(cut);
  }
  [[nodiscard]] SampleSpan span(int64_t step) const {
    uint64_t position = 0;
    SampleSpan span;
    for (int64_t s = 0; s < step; ++s) span = order_.take(position, cut_);
    return span;
  }
  [[nodiscard]] std::vector<int64_t> samples(int64_t step, uint64_t micro_batch, uint64_t rank) const {
    return order_.samples(span(step), cut_, micro_batch, rank);
  }
  [[nodiscard]] uint64_t count(int64_t step) const { return span(step).count; }

 private:
  SampleOrder order_;
  SampleCut cut_;
};

// A phase of programs in turns, of one micro-batch each.
TrainPhase phase(const std::vector<int32_t>& programs, uint64_t micro_batch, int64_t steps, int64_t epochs = 0) {
  TrainPhase out{{}, steps, epochs};
  for (const int32_t program : programs) out.turns.push_back({program, micro_batch});
  return out;
}

std::vector<TrainStep> all_steps(const TrainOrder& order) {
  std::vector<TrainStep> out;
  for (TrainPosition at = order.begin(); !order.is_at_end(at);) out.push_back(order.advance(at));
  return out;
}

}  // namespace

TEST_CASE("a permutation takes every index once and differs between epochs and seeds") {
  const auto n = GENERATE(uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{64}, uint64_t{1000}, uint64_t{4097});
  const FeistelShape shape = epoch_shape(n);
  const Permutation first(n, 7, 0, shape), next_epoch(n, 7, 1, shape), other_seed(n, 8, 0, shape);
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
    const Steps order(10000, seed, {micro, world, accum}, "");
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
  const Steps order(6, 0, {2, 2, 1}, path);
  CHECK(order.samples(1, 0, 0) == std::vector<int64_t>{5, 4});
  CHECK(order.samples(1, 0, 1) == std::vector<int64_t>{3, 2});
  CHECK(order.samples(2, 0, 1) == std::vector<int64_t>{5, 4});
  CHECK_THROWS_WITH(Steps(5, 0, {1, 1, 1}, path), Catch::Contains("entry 0") && Catch::Contains("0 to 4"));
  std::remove(path.c_str());
  CHECK_THROWS_WITH(Steps(6, 0, {1, 1, 1}, path), Catch::Contains("data.order"));
}

TEST_CASE("fewer samples than the ranks take at once is refused") {
  CHECK_THROWS_WITH(Steps(7, 0, {4, 2, 1}, ""), Catch::Contains("7 samples") && Catch::Contains("fewer ranks"));
}

TEST_CASE("an epoch's last step may be smaller: each sample once, full first ranks, empty last ranks") {
  const Steps order(29, 7, {4, 2, 2}, "", EpochEnd::shorten);  // 16 a step: 16 and 13
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

  const Steps small(3, 7, {4, 2, 2}, "", EpochEnd::shorten);
  CHECK(small.count(1) == 3);
  CHECK(small.samples(1, 0, 0).size() == 3);
  CHECK(small.samples(1, 0, 1).empty());
  CHECK_THROWS_WITH(Steps(0, 7, {1, 1, 1}, "", EpochEnd::shorten), Catch::Contains("no samples"));
}

TEST_CASE("the rest of an epoch may be left out; it has other samples in each epoch") {
  const Steps order(29, 7, {4, 2, 2}, "", EpochEnd::drop);
  const Permutation second_epoch(29, 7, 1, epoch_shape(29));
  CHECK(order.count(2) == 16);
  for (uint64_t i = 0; i < 4; ++i) CHECK(order.samples(2, 0, 0)[i] == static_cast<int64_t>(second_epoch(i)));
  CHECK_THROWS_WITH(Steps(15, 0, {4, 2, 2}, "", EpochEnd::drop), Catch::Contains("drop_last"));
}

TEST_CASE("a program that gives a rank an empty micro-batch is found, if the run reaches that step") {
  const auto program_of = [](uint64_t samples, int64_t steps) {
    return TrainOrder({phase({3}, 4, steps)}, 1, {{3, SampleOrder(samples, 7, "", EpochEnd::shorten)}}, {1, 2, 2})
        .program_with_empty();
  };
  CHECK(program_of(29, 9) == -1);  // 16 and 13
  CHECK(program_of(28, 1) == -1);  // 16 and 12, which three micro-batches take
  CHECK(program_of(28, 2) == 3);
}

TEST_CASE("programs take turns, and each reads its own samples without a gap") {
  const SampleOrder a(100, 1, ""), b(50, 2, "");
  const Steps a_steps(100, 1, {4, 1, 1}, ""), b_steps(50, 2, {4, 1, 1}, "");
  const TrainOrder order({phase({0, 2, 0}, 4, 7)}, 1, {{0, a}, {2, b}}, {1, 1, 1});
  const std::vector<int32_t> programs = {0, 2, 0, 0, 2, 0, 0};
  const std::vector<int64_t> own_steps = {1, 1, 2, 3, 2, 4, 5};
  const std::vector<TrainStep> steps = all_steps(order);
  REQUIRE(steps.size() == 7);
  for (size_t i = 0; i < programs.size(); ++i) {
    CHECK(steps[i].step == static_cast<int64_t>(i) + 1);
    CHECK(steps[i].program == programs[i]);
    CHECK(samples_of(order, steps[i], 0, 0) == (programs[i] == 0 ? a_steps : b_steps).samples(own_steps[i], 0, 0));
  }
}

TEST_CASE("an epoch in steps has each sample once, for each value of data.drop_last") {
  const auto n_steps = [](EpochEnd end, int64_t epochs) {
    return TrainOrder({phase({0}, 4, 0, epochs)}, 1, {{0, SampleOrder(29, 7, "", end)}}, {1, 2, 1}).last_step();
  };
  CHECK(n_steps(EpochEnd::join, 1) == 4);     // 32 of 29: the last step reaches into the next epoch
  CHECK(n_steps(EpochEnd::join, 8) == 29);    // 232 of 232
  CHECK(n_steps(EpochEnd::drop, 2) == 6);     // 24 of each 29
  CHECK(n_steps(EpochEnd::shorten, 2) == 8);  // 8, 8, 8, 5
}

TEST_CASE("epochs of programs that take turns are those of the first one, in whole rounds") {
  const TrainOrder order({phase({0, 1, 0}, 5, 0, 2)}, 1, {{0, SampleOrder(25, 1, "")}, {1, SampleOrder(9, 1, "")}},
                         {1, 1, 1});
  CHECK(order.last_step() == 15);  // ten steps of program 0, two in each round
}

TEST_CASE("phases run their steps in order and in cycles; a phase in epochs begins a new epoch") {
  const SampleOrder a(20, 1, "", EpochEnd::shorten), b(9, 2, "", EpochEnd::shorten);
  // Three steps of 4 of the one, then an epoch of the other in steps of 2 x 2, twice.
  const TrainOrder order({phase({0}, 4, 3), phase({1}, 2, 0, 1), phase({1}, 1, 1)}, 2, {{0, a}, {1, b}}, {1, 1, 1});
  CHECK(order.last_step() == 2 * (3 + 5 + 1));
  std::vector<uint64_t> firsts, counts;
  std::vector<int64_t> phases;
  for (const TrainStep& step : all_steps(order)) {
    firsts.push_back(step.span.first);
    counts.push_back(step.span.count);
    phases.push_back(step.phase);
  }
  // The third phase takes one sample of b's second epoch; the second cycle's epoch is therefore the third.
  CHECK(firsts == std::vector<uint64_t>{0, 4, 8, 0, 2, 4, 6, 8, 9, 12, 16, 20, 18, 20, 22, 24, 26, 27});
  CHECK(counts == std::vector<uint64_t>{4, 4, 4, 2, 2, 2, 2, 1, 1, 4, 4, 4, 2, 2, 2, 2, 1, 1});
  CHECK(phases == std::vector<int64_t>{0, 0, 0, 1, 1, 1, 1, 1, 2, 3, 3, 3, 4, 4, 4, 4, 4, 5});
}

TEST_CASE("a run resumes at the next sample from any position, also with another number of ranks") {
  const SampleOrder a(23, 1, "", EpochEnd::shorten), b(9, 2, "");
  const std::vector<TrainPhase> phases = {phase({0, 1}, 4, 5), phase({1}, 2, 0, 1)};
  const TrainOrder order(phases, 3, {{0, a}, {1, b}}, {1, 2, 1}), other(phases, 3, {{0, a}, {1, b}}, {1, 1, 2});
  const std::vector<TrainStep> whole = all_steps(order);
  TrainPosition at = order.begin();
  for (size_t done = 0; done < whole.size(); ++done) {
    TrainPosition from = at;  // as a checkpoint keeps it
    for (size_t i = done; i < whole.size(); ++i) {
      const TrainStep step = other.advance(from);
      CHECK(step.program == whole[i].program);
      CHECK(step.span.first == whole[i].span.first);
      CHECK(step.span.count == whole[i].span.count);
    }
    CHECK(other.is_at_end(from));
    static_cast<void>(order.advance(at));
  }
}

namespace {
// The samples of a step, in global order.
std::vector<int64_t> step_of(const TrainOrder& order, const TrainStep& step) {
  std::vector<int64_t> out;
  for (uint64_t m = 0; m < step.cut.grad_accum_steps; ++m) {
    for (uint64_t r = 0; r < step.cut.world_size; ++r) {
      const std::vector<int64_t> more = samples_of(order, step, m, r);
      out.insert(out.end(), more.begin(), more.end());
    }
  }
  return out;
}

TrainPosition after_steps(const TrainOrder& order, int64_t steps) {
  TrainPosition at = order.begin();
  while (at.step < steps) static_cast<void>(order.advance(at));
  return at;
}

// Program 0 of 50 samples for three epochs in turn with another one, then for four steps, all of it twice.
TrainOrder order_of(EpochEnd end, uint64_t micro_batch, uint64_t world_size, uint64_t grad_accum_steps) {
  return {{phase({0, 1, 0}, micro_batch, 0, 3), phase({0}, micro_batch, 4)},
          2,
          {{0, SampleOrder(50, 7, "", end)}, {1, SampleOrder(31, 7, "", end)}},
          {1, world_size, grad_accum_steps}};
}
}  // namespace

TEST_CASE(
    "an order that begins after a step equals the rest of the full order, in every phase and epoch, with every end") {
  const auto end = GENERATE(EpochEnd::join, EpochEnd::drop, EpochEnd::shorten);
  const TrainOrder whole = order_of(end, 2, 2, 3);  // 4 steps and a rest of 2 in an epoch
  for (int64_t steps = 0; steps <= whole.last_step(); ++steps) {
    TrainPosition expected = after_steps(whole, steps);
    TrainOrder resumed = order_of(end, 3, 4, 1);  // as many samples of a step
    resumed.begin_after(expected);
    REQUIRE(resumed.last_step() == whole.last_step());
    bool any_empty = false;
    for (TrainPosition at = resumed.begin(); !resumed.is_at_end(at);) {
      const TrainStep step = resumed.advance(at), same = whole.advance(expected);
      INFO("after step " << steps << ", step " << step.step);
      CHECK(step.step == same.step);
      CHECK(step.phase == same.phase);
      CHECK(step_of(resumed, step) == step_of(whole, same));
      CHECK(at.samples == expected.samples);
      CHECK(at.phase_begin == expected.phase_begin);
      CHECK(resumed.ends_phase(step) == whole.ends_phase(same));
      any_empty = any_empty || samples_of(resumed, step, 0, 3).empty();  // the last rank
    }
    CHECK((resumed.program_with_empty() >= 0) == any_empty);
  }
}

TEST_CASE("an order continues at the exact sample if the size of a step changes, to the end of its epochs") {
  const auto end = GENERATE(EpochEnd::join, EpochEnd::drop, EpochEnd::shorten);
  const auto order = [&](uint64_t micro_batch, uint64_t world_size) {
    return TrainOrder({phase({0}, micro_batch, 0, 3)}, 1, {{0, SampleOrder(50, 7, "", end)}}, {1, world_size, 1});
  };
  const TrainOrder before = order(6, 2), one_by_one = order(1, 1);
  TrainOrder after = order(1, 5);
  const TrainPosition saved = after_steps(before, 6);  // in the second epoch
  after.begin_after(saved);
  TrainPosition at = after.begin(), single = after_steps(one_by_one, static_cast<int64_t>(saved.samples[0]));
  if (end == EpochEnd::drop) CHECK(saved.samples[0] == 74);  // after 50 and two steps of 12
  std::vector<int64_t> rest, expected;
  int64_t step = saved.step;
  while (!after.is_at_end(at)) {
    const TrainStep now = after.advance(at);
    CHECK(now.step == ++step);
    for (const int64_t sample : step_of(after, now)) rest.push_back(sample);
  }
  while (!one_by_one.is_at_end(single)) expected.push_back(step_of(one_by_one, one_by_one.advance(single)).front());
  CHECK(at.samples[0] / 50 == 3);
  REQUIRE(rest.size() >= expected.size() - 5);
  for (size_t i = 0; i < std::min(rest.size(), expected.size()) && i < 25; ++i) CHECK(rest[i] == expected[i]);
}

TEST_CASE("a sample has the same epoch however the samples are cut into steps, and an epoch has each sample once") {
  const auto end = GENERATE(EpochEnd::join, EpochEnd::shorten);
  const auto visits = [&](uint64_t micro_batch, uint64_t world_size, uint64_t grad_accum_steps) {
    const TrainOrder order({phase({0}, micro_batch, 0, 4)}, 1, {{0, SampleOrder(50, 7, "", end)}},
                           {1, world_size, grad_accum_steps});
    std::vector<std::pair<int64_t, int64_t>> out;  // epoch, sample
    for (TrainPosition at = order.begin(); !order.is_at_end(at);) {
      const TrainStep step = order.advance(at);
      for (uint64_t m = 0; m < grad_accum_steps; ++m) {
        for (uint64_t r = 0; r < world_size; ++r) {
          BatchSamples batch;
          order.fill(batch, step, m, r);
          REQUIRE(batch.samples.size() == batch.epochs.size());
          for (size_t i = 0; i < batch.samples.size(); ++i) out.emplace_back(batch.epochs[i], batch.samples[i]);
        }
      }
    }
    out.resize(200);  // joined epochs end in a step that reaches into the next
    return out;
  };
  const auto one_by_one = visits(1, 1, 1);
  CHECK(visits(3, 2, 2) == one_by_one);
  CHECK(visits(7, 1, 3) == one_by_one);
  CHECK(std::set<std::pair<int64_t, int64_t>>(one_by_one.begin(), one_by_one.end()).size() == 200);
  CHECK(one_by_one.front().first == 0);
  CHECK(one_by_one.back().first == 3);
}

TEST_CASE("an interval of more epochs than can be counted never ends", "[order]") {
  const TrainOrder order({phase({0}, 4, 20, 0)}, 1, {{0, SampleOrder(4, 7, "")}}, {1, 1, 1});
  TrainPosition at = order.begin();
  const TrainStep step = order.advance(at);
  CHECK(order.ends_epoch(step, 1));
  CHECK_FALSE(order.ends_epoch(step, int64_t{1} << 62));
}

TEST_CASE("a run that ends before its checkpoint is refused, and a longer one resumes") {
  const auto order = [](int64_t steps, int64_t epochs, int64_t cycles) {
    return TrainOrder({phase({0}, 5, steps, epochs)}, cycles, {{0, SampleOrder(50, 7, "")}}, {1, 1, 1});
  };
  const TrainPosition saved = after_steps(order(0, 3, 1), 25);
  CHECK_THROWS_WITH(order(20, 0, 1).begin_after(saved),
                    Catch::Contains("step 25") && Catch::Contains("ends before it"));
  CHECK_THROWS_WITH(order(0, 1, 1).begin_after(saved), Catch::Contains("ends before it"));
  CHECK_THROWS_WITH(order(5, 0, 1).begin_after(after_steps(order(5, 0, 2), 10)), Catch::Contains("ends before it"));
  const auto last_step = [&](TrainOrder longer) {
    longer.begin_after(saved);
    return longer.last_step();
  };
  CHECK(last_step(order(26, 0, 1)) == 26);
  CHECK(last_step(order(0, 4, 1)) == 40);
  CHECK(last_step(order(0, 3, 2)) == 60);
}
