// SPDX-License-Identifier: Apache-2.0
//
// Features of programs: positions without their own backward, update programs, and programs that a run does not use.
#include "equivalence/features.hpp"

using namespace ddhost::test;

namespace {

const Options kFrozen = {"model.encoder=frozen", "model.frozen_layer=1"};
const Options kFlagged = {"model.encoder=forward_only", "model.frozen_layer=1", "model.input_grad_only=true"};

// Of the toy: vocab 31, width 5, hidden 9, three layers.
const uint64_t kLayerBytes = 2 * padded(9 * 5) + padded(9) + padded(1) + padded(3);
const uint64_t kTrainBytes = padded(31 * 5) + 3 * kLayerBytes + padded(31);
const uint64_t kSecondBytes = padded(31 * 5) + 3 * padded(1) + padded(31);  // embedding, gains, bias

int publishes(const Result& result) { return result.record.summary.at("plan_calls").at("publish").get<int>(); }

}  // namespace

// ---- Flags of positions -------------------------------------------------------------------------------------------

TEST_CASE("a unit that is forward-only or only gives the gradient of its input has the bits of a frozen unit",
          "[equivalence]") {
  const int world = GENERATE(1, 2, 3);
  const auto options =
      GENERATE(Options{}, Options{"train.grad_accum_steps=3", "train.recompute=2", "data.micro_batch=3"},
               Options{"train.grad_accum_steps=2", "train.reduce_order=micro_first", "train.recompute=1"},
               Options{"model.programs=2", "precision.compute=bf16", "train.eval_every=5"},
               Options{"--optimizer", "muon", "model.repeat=1"});
  const Result reference = run(kReference, world, featured(joined(options, kFrozen)));
  for (const Variant& way : taken_variants()) {
    const Result other = run(way, world, featured(joined(options, kFlagged)));
    check_same_bits(reference, other);
    check_plan(other);
  }
}

TEST_CASE("flags of positions on a device with its own memory: the same bits", "[equivalence]") {
  const Result reference = run({"ddp", "loop", {"comm.windows=copy"}}, 2, featured(kFrozen));
  for (const std::string& strategy : taken_strategies())
    check_same_bits(reference, run(on_sim(strategy), 2, featured(kFlagged)));
}

TEST_CASE("a forward-only unit is gathered once in a step", "[equivalence][counts]") {
  const auto way = GENERATE(
      Variant{
          "zero3_offload",
          "shm",
          {"strategy.offload_param.device=cpu", "strategy.offload_optimizer.device=cpu", "strategy.prefetch_units=0"}},
      Variant{"fsdp",
              "shm",
              {"strategy.cpu_offload=true", "strategy.backward_prefetch=none", "strategy.forward_prefetch=false"}});
  const Result frozen = run(way, 2, featured({"model.encoder=frozen"})),
               forward_only = run(way, 2, featured({"model.encoder=forward_only"}));
  check_counts(frozen);
  check_counts(forward_only);
  CHECK(publishes(forward_only) == publishes(frozen) - 1);
}

// ---- State of the programs of a run -------------------------------------------------------------------------------

TEST_CASE("a program that train.programs leaves out has no state", "[equivalence][memory]") {
  const Options only_second = {"model.programs=2", "train.programs=[\"second\"]"};
  for (const char* optimizer : {"adamw", "adam"}) {
    const Result result = run(kDdp, 2, joined(only_second, {"--optimizer", optimizer}));
    CHECK(peak_bytes(result, 0, "optim") == 2 * kSecondBytes);
    CHECK(peak_bytes(result, 0, "grad") == kSecondBytes);
  }
  for (const Variant& way : taken_variants()) check_plan(run(way, 2, only_second));
}

TEST_CASE("the state of all programs of a run exists from the start to the end", "[equivalence][memory]") {
  const Options both = {"model.programs=2"};
  for (const int steps : {0, 1, 4}) {  // before any of them, within the turn of the first, after both
    const Result result = run(kDdp, 2, both, steps);
    const auto& memory = result.record.summary.at("ranks").at(0).at("memory_bytes");
    CHECK(memory.at("optim").at("now").get<uint64_t>() == 2 * kTrainBytes);
    CHECK(memory.at("grad").at("now").get<uint64_t>() == kTrainBytes);
  }
}

// ---- Update programs ----------------------------------------------------------------------------------------------

namespace {

// 20 samples in micro-batches of 3: the last has 2.
const Options kUpdates = featured({"model.update_samples=20", "train.update_every=3", "data.micro_batch=3"});

}  // namespace

TEST_CASE("an update program recomputes state that the forward reads: the same bits under every strategy",
          "[equivalence]") {
  const auto more = GENERATE(Options{}, Options{"train.eval_every=3", "train.grad_accum_steps=2", "train.recompute=1"},
                             Options{"model.encoder=forward_only", "model.programs=2", "precision.compute=bf16"});
  check_all_equal(GENERATE(1, 2, 3), joined(kUpdates, more));
}

TEST_CASE("an update is not counted as a step, and changes the steps after it", "[equivalence]") {
  const Result never = run(kReference, 2, featured({"model.update_samples=20", "data.micro_batch=3"})),
               every_third = run(kReference, 2, kUpdates);
  CHECK(every_third.record.steps.size() == never.record.steps.size());
  for (size_t i = 0; i < 20; ++i) {
    const bool same = every_third.record.steps[i].at("loss") == never.record.steps[i].at("loss");
    CHECK(same == (i < 3));
  }
  CHECK_THAT(never.err, Catch::Contains("has update programs") && Catch::Contains("train.update_every=0"));
  CHECK_THAT(every_third.err, !Catch::Contains("update programs"));
}

TEST_CASE("update programs give the same bits for every number of ranks and size of micro-batches", "[equivalence]") {
  // One sum of four micro-batches: whole ranks, or one rank.
  const Result ranks = run(kDdp, 4, kUpdates), rank = run(kDdp, 1, joined(kUpdates, {"train.grad_accum_steps=4"}));
  CHECK(ranks.loss == rank.loss);
  CHECK((ranks.weights == rank.weights));
}

TEST_CASE("updates on a device with its own memory: the same bits", "[equivalence]") {
  const Result reference = run({"ddp", "loop", {"comm.windows=copy"}}, 2, kUpdates);
  for (const char* strategy : {"zero1", "zero3"}) check_same_bits(reference, run(on_sim(strategy), 2, kUpdates));
}
