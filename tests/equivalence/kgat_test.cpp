// SPDX-License-Identifier: Apache-2.0
//
// KGAT in its alternation of pairs, triples and new attention gives the same bits under every strategy, in every world and
// with any number of threads.
#include <cstdlib>

#include "equivalence/precisions.hpp"

using namespace ddhost::test;

namespace {

Options kgat(const Options& more) {
  Options all = {"model.dataset=made_up",
                 "model.embed_dim=16",
                 "model.relation_dim=8",
                 "model.layers=[16, 8]",
                 "model.message_dropout=0.1",
                 "optimizer_kg.plugin=adam",
                 "optimizer_kg.lr=0.02",
                 "train.optimizers=[\"optimizer\", \"optimizer_kg\"]",
                 R"(train.phases=[{"program": "cf", "epochs": 1}, {"program": "kg", "epochs": 1},)"
                 R"( {"program": "attention"}])",
                 "train.cycles=2",
                 "train.eval_every_epochs=2",
                 "train.eval_batches=all",
                 "train.clip_norm=0.5",
                 "data.drop_last=false",
                 "data.micro_batch.attention=50",
                 "data.micro_batch.eval=7"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Result run_kgat(const Variant& way, int world, const Options& options) {
  return run({way, world, options, kStepsOfOptions, "kgat"});
}

void check_alternation(const Computation& c) {
  check_strategies(
      {kReference, c.world, kgat(joined(options_of(c), {"data.micro_batch.cf=40", "data.micro_batch.kg=100"})),
       kStepsOfOptions, "kgat"},
      1);
}

}  // namespace

TEST_CASE("the alternation of KGAT trains with the same bits under every strategy, in fp32, bf16 and fp16",
          "[equivalence][torch]") {
  check_alternation(GENERATE(from_range(some_computations())));
}

TEST_CASE("the alternation of KGAT trains with the same bits in every world and dtype, also with recomputed units",
          "[.worlds]") {
  check_alternation(GENERATE(from_range(all_computations())));
}

TEST_CASE("KGAT by LibTorch's operators, as on a GPU, trains with the same bits under every strategy",
          "[equivalence][torch]") {
  const Options options = kgat({"model.operators=torch", "data.micro_batch.cf=40", "data.micro_batch.kg=100"});
  const Result reference = run_kgat(kReference, 2, options);
  CHECK(reference.record.evaluations.size() == 1);
  for (const Variant& way : kOneOfEachStrategy) check_same_bits(reference, run_kgat(way, 2, options));
}

TEST_CASE("the simplified KGAT trains with the same bits under every strategy", "[equivalence][torch]") {
  const Options options = {"model.dataset=made_up", "model.variant=simplified", "model.embed_dim=16",
                           "model.layers=[16, 8]",  "data.micro_batch=40",      "train.eval_every=0"};
  const auto of_world = [&](const Variant& way, int world) {
    return run_kgat(way, world, joined(options, {"train.grad_accum_steps=" + std::to_string(2 / world)}));
  };
  const Result reference = of_world(kReference, 2);
  CHECK(same_bits(reference, of_world(kReference, 1)));
  for (const Variant& way : kOneOfEachStrategy) check_same_bits(reference, of_world(way, 2));
}

TEST_CASE("neither world, accumulation nor threads change a bit of KGAT", "[equivalence][torch]") {
  // 6 micro-batches in a step, spread over ranks and threads.
  const auto with = [&](int world, int threads) {
    setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 1);
    const Result result = run_kgat(kReference, world,
                                   kgat({"data.micro_batch.cf=12", "data.micro_batch.kg=40",
                                         "train.grad_accum_steps=" + std::to_string(6 / world)}));
    unsetenv("OMP_NUM_THREADS");
    return result;
  };
  const Result one = with(1, 1);
  for (const auto& [world, threads] : {std::pair(1, 2), std::pair(2, 2), std::pair(3, 1)}) {
    const Result other = with(world, threads);
    INFO(one.command << " with 1 thread, " << other.command << " with " << threads);
    CHECK(same_bits(one, other));
  }
}
