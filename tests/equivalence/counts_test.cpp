// SPDX-License-Identifier: Apache-2.0
//
// Collectives per step are those that the strategy plans.
#include "equivalence/variants.hpp"

using namespace ddhost::test;

TEST_CASE("collectives per step equal the strategy's plan", "[counts]") {
  for (const Variant& way : taken_variants()) {
    for (const auto& [accum, optimizer] : {std::pair{"1", "adamw"}, {"3", "adamw"}, {"1", "muon"}}) {
      check_counts(run(way, 2, {"--optimizer", optimizer, std::string("train.grad_accum_steps=") + accum}));
    }
  }
}
