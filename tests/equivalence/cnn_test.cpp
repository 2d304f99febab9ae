// SPDX-License-Identifier: Apache-2.0
//
// A convolutional network on LibTorch's autograd gives the same bits under every strategy and transport.
#include "equivalence/variants.hpp"
#include "fixtures/harness/built.hpp"

using namespace ddhost::test;

TEST_CASE("a convolutional network learns, with the same bits under every strategy", "[equivalence][torch]") {
  const std::string model = test_plugin("tiny_cnn");
  const int world = GENERATE(1, 2, 3);
  const Options options = GENERATE(Options{}, Options{"train.grad_accum_steps=2", "train.clip_norm=0.5"});
  const Result reference = run({kReference, world, options, 20, model});
  CHECK(reference.record.steps.back().at("loss") < 0.9 * reference.record.steps.front().at("loss").get<double>());
  const std::vector<Variant> ways = taken_variants();
  for (size_t i = 1; i < ways.size(); ++i) {
    const Result other = run({ways[i], world, options, 20, model});
    check_same_bits(reference, other);
    check_plan(other);
  }
}
