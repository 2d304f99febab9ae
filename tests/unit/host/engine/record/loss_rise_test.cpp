// SPDX-License-Identifier: Apache-2.0
//
// What counts as a jump of the loss: none in the documented curves and in noise, one where a run diverges.
#include "engine/record/loss_rise.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

using namespace ddhost;

namespace {

using Losses = std::vector<double>;

Losses stored(const std::string& file, const char* key) {
  std::ifstream in(std::string(DDHOST_SOURCE_DIR) + "/" + file);
  REQUIRE(in);
  return nlohmann::json::parse(in).at(key).get<Losses>();
}

// The steps, from 1, in which a jump is noticed.
std::vector<size_t> jumps(const Losses& losses) {
  LossRise rise;
  std::vector<size_t> steps;
  for (size_t i = 0; i < losses.size(); ++i)
    if (rise.add(losses[i])) steps.push_back(i + 1);
  return steps;
}

Losses made(size_t steps, const std::function<double(double)>& loss) {
  Losses out;
  for (size_t i = 0; i < steps; ++i) out.push_back(loss(static_cast<double>(i)));
  return out;
}

}  // namespace

TEST_CASE("documented curves have no jump") {
  for (const char* name : {"cnn_tiny", "gpt_tiny", "vit_tiny"}) {
    INFO(name);
    CHECK(jumps(stored(std::string("configs/curves/") + name + ".json", "losses")).empty());
  }
  CHECK(jumps(stored("tests/data/golden/nanogpt_char_curve.json", "loss")).empty());
}

TEST_CASE("noise is no jump, also with long tails and near zero") {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  std::exponential_distribution<double> exponential;
  const std::vector<std::function<double(double)>> kinds = {
      [&](double) { return 2 + 0.5 * normal(random); },
      [&](double) { return normal(random); },
      [&](double) { return exponential(random); },
      [&](double step) { return 8 * std::exp(-step / 300) + 0.02 * exponential(random); },
      [&](double step) { return 2.3 * std::exp(-step / 100) + 0.02 * std::exp(1.5 * normal(random)); },
      // One batch of ten holds a sample that is not learnt.
      [&](double step) { return 2.3 * std::exp(-step / 30) + (exponential(random) > 2.3 ? exponential(random) : 0); },
  };
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    INFO(kind);
    CHECK(jumps(made(20'000, kinds[kind])).empty());
  }
}

TEST_CASE("a jump in a stored curve is noticed once, within three steps") {
  Losses losses = stored("tests/data/golden/nanogpt_char_curve.json", "loss");
  for (size_t i = 1000; i < 1040; ++i) losses[i] += 4;  // it recovers after 40 steps
  CHECK(jumps(losses) == std::vector<size_t>{1003});
  LossRise rise;
  for (size_t i = 0; i < 1002; ++i) REQUIRE(!rise.add(losses[i]));
  const auto jump = rise.add(losses[1002]);
  REQUIRE(jump);
  CHECK(jump->from == Approx(losses[990]).margin(0.3));
  CHECK(jump->to == Approx(losses[1001]).margin(0.3));
  CHECK(jump->steps == 5);
}

TEST_CASE("one bad batch is no jump, nor is a loss that is not finite") {
  Losses losses(200, 2.0);
  losses[50] = 60;
  losses[100] = losses[101] = 9;
  losses[150] = std::numeric_limits<double>::quiet_NaN();
  losses[151] = std::numeric_limits<double>::infinity();
  CHECK(jumps(losses).empty());
}

TEST_CASE("a run that diverges from its first steps on is noticed") {
  // The first steps of a character model at 30 times its rate.
  CHECK(jumps({4.19, 3.73, 3.53, 7.39, 6.79, 7.16, 6.2, 4.9, 4.29, 4.58, 4.28}) == std::vector<size_t>{8});
  CHECK(jumps({-3, -3, -3, -3, -3, 5, 5, 5, 5}) == std::vector<size_t>{9});
}
