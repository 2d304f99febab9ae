// SPDX-License-Identifier: Apache-2.0
//
// Several optimizers over shared parameters, and learning-rate factors of parameters.
#include "equivalence/features.hpp"

using namespace ddhost::test;

namespace {

// Program "train" has the first optimizer, "second" the other.
const Options kTwoAdams =
    featured({"model.programs=2", "model.optimizers=2", "train.optimizers=[\"optimizer\", \"optimizer_kg\"]",
              "optimizer_kg.plugin=adam", "optimizer_kg.lr=0.02", "optimizer_kg.betas=[0.8, 0.95]"});

uint64_t optim_bytes(const Result& result) {
  uint64_t bytes = 0;
  for (size_t rank = 0; rank < static_cast<size_t>(result.cell.world); ++rank)
    bytes += peak_bytes(result, rank, "optim");
  return bytes;
}

}  // namespace

TEST_CASE("two Adams over shared parameters: the same bits under every strategy", "[equivalence]") {
  const auto more = GENERATE(Options{}, Options{"train.grad_accum_steps=2", "model.nan_at_step=5"},
                             Options{"precision.compute=bf16", "train.clip_norm=0.05"});
  check_all_equal(GENERATE(1, 2, 3), joined(kTwoAdams, more));
}

TEST_CASE("optimizers of different needs over shared parameters: the same bits under every strategy", "[equivalence]") {
  const auto plugins =
      GENERATE(Options{"optimizer.plugin=muon", "optimizer_kg.plugin=lamb"},
               Options{"optimizer.plugin=lamb", "optimizer_kg.plugin=muon"}, Options{"optimizer.plugin=sgd"});
  Options options = {"model.programs=2", "model.optimizers=2", "train.optimizers=[\"optimizer\", \"optimizer_kg\"]",
                     kManyBlocks};
  options = featured(joined(options, plugins));
  const int world = GENERATE(2, 3);
  check_all_equal(world, options);
}

TEST_CASE("a slot exists only where a program that trains the parameter uses it", "[equivalence][memory]") {
  const uint64_t layer = 2 * padded(9 * 5) + padded(9) + padded(1) + padded(3);
  const uint64_t train = padded(31 * 5) + 3 * layer + padded(31);
  const uint64_t second = padded(31 * 5) + 3 * padded(1) + padded(31);  // embedding, gains, bias
  CHECK(optim_bytes(run(kDdp, 1, kTwoAdams)) == 2 * train + 2 * second);
  CHECK(optim_bytes(run(kZero1, 2, kTwoAdams)) == 2 * train + 2 * second);
  CHECK(optim_bytes(run(kZero3, 2, kTwoAdams)) == 2 * train + 2 * second);
  for (const Variant& way : taken_variants()) check_plan(run(way, 2, kTwoAdams));
}

TEST_CASE("each optimizer has its own moments, step counts and learning rate", "[equivalence]") {
  // The same program twice, with one optimizer or with two: only the state that is kept between steps differs.
  const Options one = featured({"model.programs=2"});
  const Options two = joined(one, {"model.optimizers=2", "train.optimizers=[\"optimizer\", \"optimizer_kg\"]"});
  const Result single = run(kReference, 1, one, 4);
  const Result same_rate = run(kReference, 1, joined(two, {"optimizer_kg.lr=0.01"}), 4);
  const Result other_rate = run(kReference, 1, joined(two, {"optimizer_kg.lr=0.03"}), 4);
  const auto column = [](const Result& result, const char* name, size_t step) {
    return result.record.steps[step].at(name).get<double>();
  };
  CHECK(column(same_rate, "loss", 1) == column(single, "loss", 1));
  CHECK(column(same_rate, "loss", 2) != column(single, "loss", 2));  // the first update of "second" has fresh moments
  for (const size_t step : {0U, 2U}) CHECK(column(other_rate, "lr", step) == column(same_rate, "lr", step));
  for (const size_t step : {1U, 3U})
    CHECK(column(other_rate, "lr", step) == Approx(3 * column(same_rate, "lr", step)).epsilon(1e-12));
}

TEST_CASE("two optimizers on a device with its own memory, also offloaded: the same bits", "[equivalence]") {
  const Result reference = run({"ddp", "loop", {"comm.windows=copy"}}, 2, kTwoAdams);
  for (const std::string& strategy : taken_strategies())
    check_same_bits(reference, run(on_sim(strategy), 2, kTwoAdams));
}

// ---- Learning-rate factors ----------------------------------------------------------------------------------------

TEST_CASE("parameters with factors on the learning rate: the same bits under every strategy", "[equivalence]") {
  const auto optimizer = GENERATE(Options{"optimizer.weight_decay=0.1"}, Options{"--optimizer", "lamb"},
                                  Options{"--optimizer", "muon", "precision.compute=bf16"});
  const Options options = featured(joined({"model.lr_scale=5"}, optimizer));
  const int world = GENERATE(1, 2, 3);
  check_all_equal(world, options);
  const Result plain = run(kReference, world, featured(optimizer)), scaled = run(kReference, world, options);
  CHECK(plain.loss != scaled.loss);
  CHECK(plain.record.column("lr") == scaled.record.column("lr"));
}

TEST_CASE("factors on the learning rate on a device with its own memory: the same bits", "[equivalence]") {
  const Options options = featured({"model.lr_scale=5", "optimizer.weight_decay=0.1"});
  const Result reference = run({"ddp", "loop", {"comm.windows=copy"}}, 2, options);
  for (const std::string& strategy : taken_strategies()) check_same_bits(reference, run(on_sim(strategy), 2, options));
}
