// SPDX-License-Identifier: Apache-2.0
//
// The same bits in low precisions, with fp32 masters and sums.
#include "equivalence/variants.hpp"

using namespace ddhost::test;

TEST_CASE("every strategy gives the same bits: norms and whole matrices over bf16 values", "[equivalence]") {
  check_all_equal(2, {"--optimizer", GENERATE("lamb", "muon"), "precision.compute=bf16", kManyBlocks});
}

TEST_CASE("every strategy gives the same bits: bf16", "[equivalence]") {
  check_all_equal(GENERATE(1, 2, 3), {"precision.compute=bf16", "train.grad_accum_steps=2"});
}

TEST_CASE("every strategy gives the same bits: fp16 with a dynamic scale, and the same steps skipped by overflow",
          "[equivalence]") {
  const Options options = {"precision.compute=fp16", "precision.initial_scale_power=30", "precision.hysteresis=1"};
  check_all_equal(GENERATE(2, 3), options);
  const Result result = run(kZero3, 2, options);
  int skipped = 0;
  double scale = 0x1p30;
  for (const auto& step : result.record.steps) {
    CHECK(step.at("loss_scale").get<double>() == scale);
    if (!step.at("skipped").get<bool>()) continue;
    ++skipped;
    scale /= 2;
  }
  CHECK(skipped > 2);
  CHECK_FALSE(result.record.steps.back().at("skipped").get<bool>());
}

TEST_CASE("low precision changes the loss only by rounding", "[equivalence]") {
  const Result fp32 = run(kZero1, 2, {}), bf16 = run(kZero1, 2, {"precision.compute=bf16"}),
               fp16 = run(kZero1, 2, {"precision.compute=fp16", "precision.initial_scale_power=4"});
  // Three times the measured differences: 2.8e-4 and 2.9e-5 of a loss; 1.2e-2 and 5.9e-4 of its decrease, which is
  // 0.047.
  CHECK(loss_distance(bf16, fp32) < 9e-4);
  CHECK(loss_distance(fp16, fp32) < 9e-5);
  CHECK(fall_distance(bf16, fp32) < 3.5e-2);
  CHECK(fall_distance(fp16, fp32) < 1.8e-3);
  CHECK(bf16.loss != fp32.loss);
  CHECK(fp16.loss != fp32.loss);
}
