// SPDX-License-Identifier: Apache-2.0
//
// The order of a small set is as good as drawn by lot. With four rounds, pairs of 64 samples followed each other 0.71 to
// 1.54 times as often as they should, and a sample of 5 had one place 1.34 times as often. With any number of rounds over 4
// bits some orders of 6 samples came 1.3 times as often as others.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <vector>

#include "engine/samples/sample_order.hpp"

using namespace ddhost;

namespace {

// The orders of all epochs of a run.
template <class Use>
void for_each_order(uint64_t n, uint64_t epochs, FeistelShape shape, Use use) {
  std::vector<int64_t> order(n);
  for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
    const Permutation permutation(n, 7, epoch, shape);
    for (uint64_t i = 0; i < n; ++i) order[i] = static_cast<int64_t>(permutation(i));
    use(order);
  }
}

// How far chi-square is above its mean, in deviations of a normal distribution (Wilson and Hilferty 1931).
double deviations(double chi_square, double freedom) {
  const double part = 2 / (9 * freedom);
  return (std::cbrt(chi_square / freedom) - (1 - part)) / std::sqrt(part);
}

double chi_square(const std::vector<double>& counts, double expected) {
  double sum = 0;
  for (const double count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

// About two hundred comparisons; a fair order is beyond this in one of three million.
constexpr double kTooFar = 5;

}  // namespace

namespace {

// Of how often each sample has each place, and of how often each follows each other one.
struct Bias {
  double places, followers;
};
Bias bias_of(uint64_t n, uint64_t n_epochs, FeistelShape shape) {
  std::vector<double> places(n * n), followers(n * (n - 1));
  for_each_order(n, n_epochs, shape, [&](const std::vector<int64_t>& order) {
    for (uint64_t i = 0; i < n; ++i) {
      const auto sample = static_cast<uint64_t>(order[i]);
      ++places[i * n + sample];
      if (i + 1 == n) continue;
      const auto next = static_cast<uint64_t>(order[i + 1]);
      ++followers[sample * (n - 1) + next - (next > sample ? 1 : 0)];
    }
  });
  const auto size = static_cast<double>(n), epochs = static_cast<double>(n_epochs);
  // Each epoch fills every row and every column once.
  return {deviations(chi_square(places, epochs / size) * (size - 1) / size, (size - 1) * (size - 1)),
          deviations(chi_square(followers, epochs / size), size * (size - 1) - 1)};
}

}  // namespace

TEST_CASE("in small sets every sample has every place and every neighbour equally often") {
  for (uint64_t n = 2; n <= 100; ++n) {
    const Bias bias = bias_of(n, n <= 64 ? 4000 : 600, epoch_shape(n));
    INFO(n << " samples");
    CHECK(bias.places < kTooFar);
    CHECK(bias.followers < kTooFar);
  }
}

TEST_CASE("orders of which four rounds are seen to be biased are not") {
  struct Size {
    uint64_t n, epochs;
  };
  for (const auto& [n, epochs] : {Size{5, 4000}, Size{16, 4000}, Size{33, 20'000}, Size{64, 20'000}}) {
    INFO(n << " samples");
    const Bias four = bias_of(n, epochs, short_shape(n)), now = bias_of(n, epochs, epoch_shape(n));
    CHECK(std::max(four.places, four.followers) > kTooFar);
    CHECK(std::max(now.places, now.followers) < kTooFar);
  }
}

TEST_CASE("every order of up to six samples is equally likely") {
  constexpr uint64_t kEpochs = 30'000;
  double orders = 1;
  for (uint64_t n = 2; n <= 6; ++n) {
    orders *= static_cast<double>(n);
    std::map<std::vector<int64_t>, double> seen;
    for_each_order(n, kEpochs, epoch_shape(n), [&](const std::vector<int64_t>& order) { ++seen[order]; });
    INFO(n << " samples");
    REQUIRE(static_cast<double>(seen.size()) == orders);
    std::vector<double> counts;
    for (const auto& [order, count] : seen) counts.push_back(count);
    CHECK(deviations(chi_square(counts, static_cast<double>(kEpochs) / orders), orders - 1) < kTooFar);
  }
}

TEST_CASE("sets of more than 1024 samples keep the order of earlier versions, and those of 1024 their own") {
  const auto first_of = [](uint64_t n, uint64_t epoch) {
    const SampleOrder order(n, 1337, "");
    return order.samples({epoch * n, 6}, {6, 1, 1}, 0, 0);
  };
  CHECK(first_of(1024, 0) == std::vector<int64_t>{670, 396, 995, 796, 55, 102});
  CHECK(first_of(1025, 0) == std::vector<int64_t>{260, 515, 688, 843, 200, 355});
  CHECK(first_of(60000, 3) == std::vector<int64_t>{4766, 24711, 12285, 3455, 48902, 27250});
}
