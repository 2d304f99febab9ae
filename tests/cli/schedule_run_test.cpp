// SPDX-License-Identifier: Apache-2.0
//
// The learning rates of whole runs: the train loop's calls of the schedule.
#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/harness/built.hpp"
#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost::test;

namespace {

std::vector<double> rates_of_run(std::vector<std::string> options) {
  const TempFolder folder;
  options.insert(options.end(), {"--model", toy_model(), "--nproc", "2", "optimizer.lr=0.01", "run.quiet=true",
                                 "run.dir=" + folder.file("run")});
  Process process(options);
  const int code = process.wait();
  INFO(process.command() << "\n" << process.err());
  REQUIRE(code == 0);
  std::vector<double> rates;
  for (const nlohmann::json& step : read_run(folder.path() / "run").steps) rates.push_back(step.at("lr"));
  return rates;
}

}  // namespace

TEST_CASE("a skipped step does not advance DeepSpeed's warm-up", "[cli]") {
  const std::vector<std::string> words = {"schedule.type=WarmupLR", "schedule.warmup_type=linear",
                                          "schedule.warmup_num_steps=4", "train.steps=6"};
  CHECK(rates_of_run(words) == std::vector<double>{0, 0, 0.0025, 0.005, 0.0075, 0.01});
  std::vector<std::string> with_nan = words;
  with_nan.emplace_back("model.nan_at_step=3");
  CHECK(rates_of_run(with_nan) == std::vector<double>{0, 0, 0.0025, 0.0025, 0.005, 0.0075});
}

TEST_CASE("plateau lowers the rate after evaluations without an improvement", "[cli]") {
  // No loss falls to a hundredth of the best, so every evaluation but the first lowers the rate.
  CHECK(rates_of_run({"schedule.type=ReduceLROnPlateau", "schedule.patience=0", "schedule.factor=0.5",
                      "schedule.threshold=0.99", "train.eval_every=2", "train.eval_batches=1", "train.steps=8"}) ==
        std::vector<double>{0.01, 0.01, 0.01, 0.01, 0.005, 0.005, 0.0025, 0.0025});
}

TEST_CASE("an external schedule is loaded from its path", "[cli]") {
  const std::string file = test_plugin("halving");
  const std::vector<double> expected = {0.01, 0.01 * std::exp2(-0.5), 0.005, 0.01 * std::exp2(-1.5), 0.0025};
  CHECK(rates_of_run({"--schedule", file, "schedule.half_life=2", "train.steps=5"}) == expected);
  CHECK(rates_of_run({"schedule.type=" + file + ":halving", "schedule.half_life=2", "train.steps=5"}) == expected);
}
