// SPDX-License-Identifier: Apache-2.0
//
// A convolutional network on LibTorch's autograd gives the same bits under every strategy and transport.
#include "equivalence/variants.hpp"
#include "fixtures/harness/built.hpp"

using namespace ddhost::test;

namespace {

const Options kPlain, kAccumulated = {"train.grad_accum_steps=2", "train.clip_norm=0.5"};

void check_network(int world, const Options& options) {
  const std::string model = test_plugin("tiny_cnn");
  const Result reference = run({kReference, world, options, 20, model});
  CHECK(reference.record.steps.back().at("loss") < 0.9 * reference.record.steps.front().at("loss").get<double>());
  const std::vector<Variant> ways = taken_variants();
  for (size_t i = 1; i < ways.size(); ++i) {
    const Result other = run({ways[i], world, options, 20, model});
    check_same_bits(reference, other);
    check_plan(other);
  }
}

}  // namespace

TEST_CASE("a convolutional network learns, with the same bits under every strategy", "[equivalence][torch]") {
  SECTION("1 rank") { check_network(1, kPlain); }
  SECTION("2 ranks") { check_network(2, kAccumulated); }
  SECTION("3 ranks") { check_network(3, kPlain); }
}

TEST_CASE("a convolutional network has the same bits in the other worlds, plain and accumulated", "[.worlds]") {
  SECTION("1 rank") { check_network(1, kAccumulated); }
  SECTION("2 ranks") { check_network(2, kPlain); }
  SECTION("3 ranks") { check_network(3, kAccumulated); }
}
