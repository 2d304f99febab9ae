// SPDX-License-Identifier: Apache-2.0
//
// Gradients that are counted twice or never, updates that are missing or duplicate, steps without decide, and
// optimizers that produce NaN or infinity. All of these once ended with success.
#include "fixtures/harness/bad_run.hpp"

using namespace ddhost::test;

TEST_CASE("a step without decide is refused, on one rank and on all", "[misbehaving]") {
  check_named(run_bad(bad_strategy("step", "no_decide", {"strategy.step=2"})),
              {"strategy 'bad', step", "without ddh.optim decide in step 2", "fix the strategy"});
  check_named(run_bad(bad_strategy("step", "no_decide", {"strategy.step=2", "strategy.rank=1"})),
              {"rank 1: strategy 'bad', step", "without ddh.optim decide"});
}

TEST_CASE("a strategy that takes more than it planned is named with the block, at the end", "[misbehaving]") {
  const Words half = bad_strategy("plan", "half");
  check_named(run_bad(joined(half, {"run.plan_check=error"})), {"strategy 'bad' planned", "of tag optim and took",
                                                                "was the first above the plan", "run.plan_check=warn"});
  for (const Words& options : {half, joined(half, {"run.plan_check=warn"})}) {
    const BadEnd end = run_bad(joined(options, {"run.quiet=false", "run.sample_tokens=0"}));
    INFO(end.err);
    CHECK(end.code == 0);  // a plugin from outside
    CHECK_THAT(end.err, Catch::Contains("of tag optim and took"));
  }
  const BadEnd twice = run_bad(joined(bad_strategy("plan", "double"), {"run.quiet=false", "run.sample_tokens=0"}));
  INFO(twice.err);
  CHECK(twice.code == 0);
  CHECK_THAT(twice.err, Catch::Contains("strategy 'bad' planned") && !Catch::Contains("above the plan"));
}

TEST_CASE("a gradient counts once over all ranks", "[misbehaving]") {
  const char* const comm = GENERATE("shm", "loop");
  check_named(run_bad(bad_strategy("step", "gradient_twice", {"--comm", comm})),
              {"strategy 'bad', step", "over all ranks", "elements of the gradient of parameter", "counts once"});
  check_named(run_bad(bad_strategy("step", "gradient_twice", {"--comm", comm, "strategy.rank=1"})),
              {"strategy 'bad', step", "over all ranks", "counts once"});
  check_named(run_bad(bad_strategy("step", "gradient_never", {"--comm", comm})),
              {"strategy 'bad', step", "the gradient of parameter", "was not counted in the norm on any rank",
               "fix the strategy"});
}

TEST_CASE("a range that belongs to no parameter, or goes beyond one, is refused at once", "[misbehaving]") {
  check_named(run_bad(bad_strategy("step", "wrong_param")), {"strategy 'bad', step", "names parameter 99"});
  check_named(run_bad(bad_strategy("step", "beyond_end")), {"strategy 'bad', step", "goes beyond"});
}

TEST_CASE("a strategy that continues after a refused call is refused at the end of its step", "[misbehaving]") {
  check_named(run_bad(bad_strategy("step", "ignores_refusal", {"strategy.rank=1"})),
              {"rank 1: strategy 'bad', step", "continued after a refused call", "names parameter 99"});
}

TEST_CASE("a step that does not update each element that a rank holds exactly once is refused", "[misbehaving]") {
  check_named(run_bad(bad_strategy("step", "update_missing", {"strategy.step=2"})),
              {"strategy 'bad', step", "updated 0 of the", "elements of parameter", "fix the strategy"});
  check_named(run_bad(bad_strategy("step", "update_missing", {"strategy.step=2", "strategy.rank=1"})),
              {"rank 1: strategy 'bad', step", "updated 0 of the"});
  check_named(run_bad(bad_strategy("step", "update_twice")), {"strategy 'bad', step", "a second time in one step"});
  check_named(run_bad(bad_strategy("step", "null_slot")),
              {"strategy 'bad', step", "no memory (NULL) for slot 'exp_avg'"});
}

TEST_CASE("values that are not finite after an update name who writes them, not the gradient", "[misbehaving]") {
  check_named(
      run_bad(bad_optimizer("update", "nan")),
      {"is not finite from element", "every gradient that was applied was finite", "optimizer 'bad_optimizer'"});
  // After the first steps, the next gradient reveals it.
  check_named(run_bad(bad_optimizer("update", "nan", {"train.steps=20", "optimizer.step=9"})),
              {"is not finite from element", "optimizer 'bad_optimizer'"});
}

TEST_CASE("weights that are not finite are never written", "[misbehaving]") {
  const TempFolder folder;
  const std::string file = folder.file("weights.safetensors");
  check_named(run_bad(bad_optimizer("update", "nan",
                                    {"--model", test_plugin("bad_model"), "train.steps=5", "optimizer.step=5",
                                     "train.save_final=" + file})),
              {"the weights are not written", "'weight'", "optimizer 'bad_optimizer'"});
  CHECK(std::filesystem::is_empty(folder.path()));
}
