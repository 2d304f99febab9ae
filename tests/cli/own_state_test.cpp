// SPDX-License-Identifier: Apache-2.0
//
// A strategy with state of its own (tests/fixtures/strategies/keeping_strategy.cpp): what checkpoints hold of it, in the same
// and in another world; what the ABI tells it of the run; the log of a plugin that can't resume exactly; versions of its state;
// and optimizers of its own that are refused.
#include <catch2/catch.hpp>

#include "cli/checkpoint_runs.hpp"

using namespace ddhost::test;
using Catch::Contains;

namespace {

Words keeping(const Words& more = {}) { return joined({"--strategy", test_plugin("keeping")}, more); }

void train(const Runs& runs, const std::string& name, const Words& words) {
  const Said said = runs.train(name, words);
  INFO(name << ": " << said.err);
  REQUIRE(said.code == 0);
}

std::string log_of(const Runs& runs, const std::string& name) { return read_text(runs.dir(name) + "/log.txt"); }

// What the strategies of all ranks wrote in a step, from the word "step" on.
std::multiset<std::string> lines_of_step(const std::string& log, int step) {
  const std::string begin = "step " + std::to_string(step) + " of ";
  std::multiset<std::string> out;
  std::istringstream in(log);
  for (std::string line; std::getline(in, line);)
    if (const size_t at = line.find(begin); at != std::string::npos && line.find("targets") != std::string::npos)
      out.insert(line.substr(at));
  return out;
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("a strategy is told the run's steps, the last of them and each rank's targets", "[cli]") {
  const Runs runs;
  train(runs, "run", keeping({"data.micro_batch=3"}));
  const std::string log = log_of(runs, "run");
  INFO(log);
  CHECK(lines_of_step(log, 5) == std::multiset<std::string>{"step 5 of 6, last 0, targets 3 of 6, sums 350 350",
                                                            "step 5 of 6, last 0, targets 3 of 6, sums 350 700"});
  CHECK(lines_of_step(log, 6) == std::multiset<std::string>{"step 6 of 6, last 1, targets 3 of 6, sums 420 420",
                                                            "step 6 of 6, last 1, targets 3 of 6, sums 420 840"});
}

TEST_CASE("own state is saved for all ranks, or once for each rank, and read again", "[cli]") {
  const Runs runs;
  train(runs, "whole", keeping({"checkpoint.every=3", "checkpoint.keep_last=0"}));
  train(runs, "rest", keeping({"--resume", runs.step("whole", 3)}));
  for (const int step : {4, 5, 6}) {
    INFO(step);
    CHECK(lines_of_step(log_of(runs, "whole"), step).size() == 2);
    CHECK(lines_of_step(log_of(runs, "rest"), step) == lines_of_step(log_of(runs, "whole"), step));
  }

  const Said other = runs.train("other", keeping({"--nproc", "3", "--resume", runs.step("whole", 3)}));
  INFO(other.err);
  CHECK(other.code == 0);
  CHECK(count(other.err, "these begin with zeros: 'sum.of_rank'") == 1);
  CHECK(lines_of_step(log_of(runs, "other"), 4).size() == 3);
  for (const std::string& line : lines_of_step(log_of(runs, "other"), 4)) CHECK_THAT(line, Contains("sums 280 "));

  train(runs, "ddp", {"--strategy", "ddp", "checkpoint.every=3"});
  const Said from_ddp = runs.train("from_ddp", keeping({"--resume", runs.step("ddp", 3)}));
  INFO(from_ddp.err);
  CHECK(from_ddp.code == 1);
  CHECK_THAT(from_ddp.err, Contains("has no 'own/sum.shared', which the strategy of this run needs to go on") &&
                               Contains("train.init_from"));
  const Said to_ddp = runs.train("to_ddp", {"--strategy", "zero1", "--resume", runs.step("whole", 3)});
  INFO(to_ddp.err);
  CHECK(to_ddp.code == 0);
  CHECK(count(to_ddp.err, "'sum.of_rank', 'sum.shared'") == 1);
  CHECK_THAT(to_ddp.err, Contains("are left out"));
}

TEST_CASE("a plugin that can't resume exactly is named at the start and at each checkpoint", "[cli]") {
  const Runs runs;
  train(runs, "whole", keeping({"checkpoint.every=3", "checkpoint.keep_last=0"}));
  const std::string log = log_of(runs, "whole");
  INFO(log);
  CHECK(count(log, "strategy 'keeping' has state that checkpoints do not hold (DDH_CAP_INEXACT_RESUME)") == 1);
  CHECK(count(log, "it lacks state of strategy 'keeping'") == 2);  // of steps 3 and 6
  train(runs, "rest", keeping({"--resume", runs.step("whole", 3), "checkpoint.every=100"}));
  INFO(log_of(runs, "rest"));
  CHECK(count(log_of(runs, "rest"), "it lacks state of strategy 'keeping'") >= 1);  // where it was read
  train(runs, "ddp", {"--strategy", "ddp", "checkpoint.every=3"});
  CHECK_THAT(log_of(runs, "ddp"), !Contains("DDH_CAP_INEXACT_RESUME"));
}

TEST_CASE("a strategy's state of a newer version is refused", "[cli]") {
  const Runs runs;
  train(runs, "newer", {"--strategy", test_plugin("keeping_v3"), "checkpoint.every=3"});
  const Said said = runs.train("run", keeping({"--resume", runs.step("newer", 3)}));
  INFO(said.err);
  CHECK(said.code == 1);
  CHECK_THAT(said.err, Contains("saved by 'keeping' 3.0 with state version 3; this one reads 1 to 2"));
}

TEST_CASE("an optimizer of a strategy's own is refused with a sentence", "[cli]") {
  const Runs runs;
  const auto refused = [&](const Words& more, const std::string& words) {
    const Said said = runs.train("r", keeping(more));
    INFO(said.err);
    CHECK(said.code == 1);
    CHECK_THAT(said.err, Contains(words));
  };
  refused({"strategy.own_optimizer=no_such"}, "no_such");
  refused({"strategy.own_optimizer=lamb"}, "'lamb' of section 'strategy.own' needs norms of whole parameters");
  refused({"strategy.own_optimizer=sgd", R"(strategy.own_options={"momentum": -1})"}, "momentum");
  refused({"strategy.own_optimizer=sgd", R"(strategy.own_options={"colour": 1})"}, "colour");
  train(runs, "made", keeping({"strategy.own_optimizer=sgd", R"(strategy.own_options={"momentum": 0.5})"}));
}
