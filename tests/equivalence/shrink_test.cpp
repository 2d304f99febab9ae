// SPDX-License-Identifier: Apache-2.0
//
// A test of the tests: a strategy with a mistake is found, and the shortest commands that show it are printed.
#include "equivalence/shrink.hpp"

#include <algorithm>

#include "fixtures/harness/built.hpp"

using namespace ddhost::test;

namespace {

const std::string kForgetful = test_plugin("forgetful");

}  // namespace

TEST_CASE("a strategy that omits a gradient is found, and the command is reduced to the options that show it",
          "[shrink]") {
  const Variant way = {kForgetful, "shm", {"comm.windows=copy", "comm.poison=true"}};
  const Options options = {"--optimizer",         "sgd",
                           "train.clip_norm=0.5", "train.grad_accum_steps=3",
                           "data.micro_batch=3",  "train.recompute=1"};
  const Result reference = run(kReference, 4, options, 6), wrong = run(way, 4, options, 6);
  REQUIRE_FALSE(same_bits(reference, wrong));
  const Cell smallest = shrink(wrong.cell, differs_from(kReference));
  CHECK(smallest.options == Options{"train.grad_accum_steps=3"});
  CHECK(smallest.way.options.empty());
  CHECK(smallest.world == 2);
  CHECK(smallest.steps == 3);

  const std::string text = shortest_commands(reference, wrong);
  CHECK_THAT(text, Catch::Contains(command_line(smallest)));
  CHECK_THAT(text, Catch::Contains("--strategy ddp") && Catch::Contains("train.grad_accum_steps=3") &&
                       !Catch::Contains("sgd") && !Catch::Contains("clip_norm"));
}

TEST_CASE("nothing is found if the options that trigger the mistake are missing", "[shrink]") {
  const Variant way = {kForgetful, "loop", {}};
  CHECK(same_bits(run(kReference, 3, {}, 4), run(way, 3, {}, 4)));
  CHECK(same_bits(run(kReference, 1, {"train.grad_accum_steps=2"}, 4), run(way, 1, {"train.grad_accum_steps=2"}, 4)));
}

TEST_CASE("options that the failure does not need are removed, flags together with their values", "[shrink]") {
  const auto shows = [](const Cell& cell) {
    const auto has = [&cell](const char* word) {
      return std::find(cell.options.begin(), cell.options.end(), word) != cell.options.end();
    };
    return has("--optimizer") && has("b=2") && cell.world >= 3 && cell.steps >= 7;
  };
  const Cell smallest =
      shrink({{"x", "loop", {"c=3"}}, 8, {"a=1", "--optimizer", "lamb", "b=2", "--device", "sim"}, 20}, shows);
  CHECK(smallest.options == Options{"--optimizer", "lamb", "b=2"});
  CHECK(smallest.way.options.empty());
  CHECK(smallest.world == 3);
  CHECK(smallest.steps == 7);
}
