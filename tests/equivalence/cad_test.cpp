// SPDX-License-Identifier: Apache-2.0
//
// The whole curriculum of a CAD-MLLM gives the same bits under every strategy and in every world, with all that is random in
// its training: dropout, the mix of modalities, captions that are left out.
#include <cstdlib>

#include "equivalence/variants.hpp"

using namespace ddhost::test;

namespace {

constexpr int kSteps = 6;

// Two steps of each stage.
Options curriculum(const Options& more) {
  Options all = {"train.steps=null",
                 R"(train.phases=[{"program":"stage1_text","steps":2,"lr":0.01,"optimizer":"new"},)"
                 R"({"program":"stage2_text_pc","steps":2,"lr":0.01,"optimizer":"new"},)"
                 R"({"program":"stage3_all","steps":2,"lr":0.005,"optimizer":"new"}])",
                 "schedule.type=cosine",
                 "schedule.warmup_steps=1",
                 "model.lora_dropout=0.1",
                 "model.projector_dropout=0.1",
                 "model.text_dropout=0.5",
                 "model.init=fan_in",
                 "train.clip_norm=0.5",
                 "train.eval_every=3",
                 "train.eval_batches=3",
                 "run.sample_tokens=0"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

TEST_CASE("the curriculum of a CAD-MLLM has the same bits under every strategy", "[equivalence][torch]") {
  const int world = GENERATE(1, 2, 3);
  const Options options = curriculum({"data.micro_batch=2"});
  const Result reference = run({kReference, world, options, kSteps, "cad_mllm"});
  CHECK(reference.record.evaluations.size() == 6);
  // Gradients and two moments of adapters and projectors alone, of 195,840 parameters; a little is lost to alignment.
  constexpr double kTrainedBytes = 4 * 16864;
  CHECK(static_cast<double>(peak_bytes(reference, 0, "grad")) < 1.01 * kTrainedBytes);
  CHECK(static_cast<double>(peak_bytes(reference, 0, "optim")) < 1.01 * 2 * kTrainedBytes);
  for (const Variant& way : kOneOfEachStrategy) {
    const Result other = run({way, world, options, kSteps, "cad_mllm"});
    check_same_bits(reference, other);
    check_plan(other);
  }
}

TEST_CASE("neither world, accumulation nor threads change a bit of a CAD-MLLM", "[equivalence][torch]") {
  const std::string compute = GENERATE("fp32", "bf16");
  // 6 micro-batches in a step, spread over ranks and threads.
  const auto with = [&](int world, const char* threads) {
    setenv("OMP_NUM_THREADS", threads, 1);
    const Result result = run({kReference, world,
                               curriculum({"data.micro_batch=2", "precision.compute=" + compute,
                                           "train.grad_accum_steps=" + std::to_string(6 / world)}),
                               kSteps, "cad_mllm"});
    unsetenv("OMP_NUM_THREADS");
    return result;
  };
  const Result one = with(1, "1");
  for (const auto& [world, threads] : {std::pair(1, "2"), std::pair(2, "2"), std::pair(3, "1")}) {
    const Result other = with(world, threads);
    INFO(one.command << " with 1 thread, " << other.command << " with " << threads);
    CHECK(same_bits(one, other));
  }
}
