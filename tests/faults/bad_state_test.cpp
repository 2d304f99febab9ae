// SPDX-License-Identifier: Apache-2.0
//
// Ranks whose replicas drift apart, strategies whose state is not what they train, and values that are not finite. All of
// these once ended with success, or blamed a plugin that was not at fault.
#include "cli/checkpoint_runs.hpp"
#include "fixtures/harness/bad_run.hpp"

using namespace ddhost::test;

namespace {

const Words kEqual = {"hold different values of", "must be equal"};

}  // namespace

TEST_CASE("a rank that updates with a gradient of its own is found after the step", "[misbehaving]") {
  const char* const comm = GENERATE("shm", "loop");
  check_named(run_bad(bad_strategy("step", "own_gradient", {"--comm", comm, "strategy.rank=1"})),
              joined(kEqual, {"after step 1, rank", "parameter 'embedding'"}));
}

TEST_CASE("a weight that changes on one rank names the parameter, and the rank that differs from most",
          "[misbehaving]") {
  check_named(run_bad(bad_strategy("step", "own_weight",
                                   {"--nproc", "3", "strategy.rank=0", "strategy.step=2", "train.steps=2"})),
              joined(kEqual, {"after step 2, rank 0 and ranks 1, 2", "parameter '"}));
}

TEST_CASE("replicas are compared after 1, 2, 4 and more steps, before a checkpoint, and at the end", "[misbehaving]") {
  const Words drifts = bad_strategy("step", "own_weight", {"strategy.rank=1", "strategy.step=5"});
  check_named(run_bad(joined(drifts, {"train.steps=20"})), joined(kEqual, {"after step 8"}));
  check_named(run_bad(joined(drifts, {"train.steps=6"})), joined(kEqual, {"after step 6"}));
  check_named(run_bad(joined(drifts, {"train.steps=20", "checkpoint.every=7"})), joined(kEqual, {"after step 7"}));
  check_named(run_bad(joined(drifts, {"train.steps=20", "run.check_replicas=5"})), joined(kEqual, {"after step 5"}));
  const BadEnd unchecked = run_bad(joined(drifts, {"train.steps=6", "run.check_replicas=off"}));
  INFO(unchecked.err);
  CHECK(unchecked.code == 0);
}

TEST_CASE("no checkpoint of ranks that drifted is left", "[misbehaving]") {
  const Runs runs;
  const Said end = runs.train(
      "drifts",
      joined(bad_strategy("step", "own_weight", {"strategy.rank=1", "strategy.step=3"}), {"checkpoint.every=3"}));
  CHECK(end.code > 0);
  CHECK(runs.saved("drifts") == std::set<std::string>{});
}

TEST_CASE("optimizer state that changes on one rank is named before the weights follow it", "[misbehaving]") {
  check_named(run_bad(bad_strategy("step", "own_slot", {"strategy.rank=1", "strategy.step=1"})),
              joined(kEqual, {"after step 1, rank", "optimizer state '"}));
}

TEST_CASE("a buffer that differs between ranks is found", "[misbehaving]") {
  check_named(run_bad(bad_model("forward", "own_buffer")), joined(kEqual, {"after step 1", "buffer 'table'"}));
}

TEST_CASE("an entry of the state that is not cut at the grid is refused", "[misbehaving]") {
  check_named(run_bad(bad_strategy("state", "odd_cut")),
              {"strategy 'bad', state", "entry 0", "is not cut at multiples of 64 elements"});
}

TEST_CASE("an entry of a strategy's own needs a name that it has once", "[misbehaving]") {
  check_named(run_bad(bad_strategy("state", "own_unnamed")), {"strategy 'bad', state", "DDH_STATE_OWN", "has no name"});
  check_named(run_bad(bad_strategy("state", "own_ill_named")), {"strategy 'bad', state", "is called 'Momentum'"});
  check_named(run_bad(bad_strategy("state", "own_twice")), {"strategy 'bad', state", "the own entry 'momentum' twice"});
  check_named(run_bad(bad_strategy("state", "own_everywhere", {"--nproc", "2"})),
              {"strategy 'bad', state", "own entry 'momentum' with 192 elements", "each of its 96 must occur once"});
  check_named(run_bad(bad_strategy("state", "odd_scope")), {"strategy 'bad', state", "entry 0 has scope 7"});
}

TEST_CASE("a strategy that does not initialize its parameters is refused", "[misbehaving]") {
  check_named(run_bad(bad_strategy("materialize", "not_initialized", {"strategy.rank=1"})),
              {"rank 1: strategy 'bad', materialize", "other values than its initial ones", "ddh.params"});
}

TEST_CASE("a strategy whose state is a copy can't be resumed", "[misbehaving]") {
  const Runs runs;
  const Words strategy = {"--strategy", test_plugin("bad_strategy")};
  REQUIRE(runs.train("run", joined(strategy, {"train.steps=3", "checkpoint.every=3"})).code == 0);
  const Said resumed = runs.train("run", joined(bad_strategy("state", "copy"), {"train.steps=6", "--resume", "auto",
                                                                                "--resume-allow", "train.steps"}));
  INFO(resumed.err);
  CHECK(resumed.code > 0);
  CHECK_THAT(resumed.err, Catch::Contains("strategy 'bad', state_commit"));
  CHECK_THAT(resumed.err, Catch::Contains("not a copy"));
  CHECK_THAT(resumed.err, Catch::Contains("step-3"));
}

TEST_CASE("a parameter that is not finite is not blamed on the optimizer alone", "[misbehaving]") {
  const BadEnd end = run_bad(bad_strategy("step", "nan_weight"));
  check_named(end, {"is not finite from element 3 on", "every gradient that was applied was finite", "strategy 'bad'",
                    "optimizer 'adamw'"});
  CHECK_THAT(end.err, !Catch::Contains("computed it"));
}
