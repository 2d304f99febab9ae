// SPDX-License-Identifier: Apache-2.0
//
// run.check_plugins: optimizers and strategies that break a rule of the headers which a normal run trusts. Without the
// option all of them end with success.
#include "fixtures/harness/bad_run.hpp"

using namespace ddhost::test;

namespace {

Words checked(Words options, bool on = true) {
  options.push_back(on ? "run.check_plugins=true" : "run.check_plugins=false");
  return options;
}

void check_found(const Words& options, const Words& words) {
  const BadEnd unchecked = run_bad(checked(options, false));
  INFO(unchecked.command << "\n" << unchecked.err);
  CHECK(unchecked.code == 0);
  check_named(run_bad(checked(options)), words);
}

}  // namespace

TEST_CASE("plugins that keep the rules pass the checks", "[checked]") {
  for (const Words& options : {bad_optimizer("", "none"), bad_optimizer("prepare", "none"), bad_strategy("", "none"),
                               bad_optimizer("", "none", {"--device", "sim", "--strategy", "ddp"})}) {
    const BadEnd end = run_bad(checked(options));
    INFO(end.command << "\n" << end.err);
    CHECK(end.code == 0);
  }
}

TEST_CASE("an update that writes outside of its ranges is named", "[checked]") {
  const char* const device = GENERATE("cpu", "sim");
  check_found(bad_optimizer("update", "padding", {"optimizer.step=2", "--device", device}),
              {"optimizer 'bad_optimizer', update", "writes to the master weights behind the end of its range",
               "parameter '", "fix the plugin"});
  check_found(bad_optimizer("update", "between", {"optimizer.step=2", "--device", device}),
              {"optimizer 'bad_optimizer', update", "writes between the ranges of parameter '", "fix the plugin"});
}

TEST_CASE("an update whose result depends on its range, its place or earlier calls is named", "[checked]") {
  const Words words = {"optimizer 'bad_optimizer', update", "of parameter '", "other bits in the master weights",
                       "fix the plugin"};
  check_found(bad_optimizer("update", "place_in_range"), words);
  check_found(bad_optimizer("update", "place_in_buffer"), words);
  check_found(bad_optimizer("update", "number_of_calls"), words);
}

TEST_CASE("an update that writes what it must not is named", "[checked]") {
  check_found(bad_optimizer("update", "gradients"),
              {"optimizer 'bad_optimizer', update", "writes element 0 of the gradients, parameter '"});
  // The strategies of the SDK give an unused slot no memory; this one does.
  check_found(bad_optimizer("update", "unused_slot", bad_strategy("", "none")),
              {"optimizer 'bad_optimizer', update", "writes element 0 of the unused slot 'unused', parameter '"});
  check_found(bad_optimizer("update", "ignores_skip"),
              {"optimizer 'bad_optimizer', update", "in a step that is skipped, parameter '"});
}

TEST_CASE("a prepare that writes the master, or beyond its values, or depends on its range is named", "[checked]") {
  check_found(bad_optimizer("prepare", "master"),
              {"optimizer 'bad_optimizer', prepare", "writes element 0 of the master weights, parameter '"});
  check_found(bad_optimizer("prepare", "behind_values"),
              {"optimizer 'bad_optimizer', prepare", "writes to the values for norms behind the end of its range"});
  check_found(bad_optimizer("prepare", "place"),
              {"optimizer 'bad_optimizer', prepare", "other bits in the values for norms"});
}

TEST_CASE("padding that is not zero is named", "[checked]") {
  check_found(bad_strategy("step", "padding", {"strategy.step=2"}),
              {"strategy 'bad', step", "elements of padding behind parameter '", "not zero in the gradients"});
}

TEST_CASE("a plan that allocates memory is named", "[checked]") {
  check_found(bad_strategy("plan", "allocates"), {"strategy 'bad', plan", "allocates memory"});
}
