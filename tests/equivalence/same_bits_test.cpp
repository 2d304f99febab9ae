// SPDX-License-Identifier: Apache-2.0
//
// The same run gives the same bits under every strategy and transport: worlds, sums, uses, blocks.
#include "equivalence/variants.hpp"

using namespace ddhost::test;

TEST_CASE("every strategy gives the same bits: plain", "[equivalence]") { check_all_equal(GENERATE(1, 2, 3, 4), {}); }

TEST_CASE("every strategy gives the same bits: accumulation, ranks first", "[equivalence]") {
  check_all_equal(GENERATE(1, 2, 3, 4),
                  {"train.grad_accum_steps=3", "train.reduce_order=rank_first", "data.micro_batch=3"});
}

TEST_CASE("every strategy gives the same bits: accumulation, micro-batches first", "[equivalence]") {
  check_all_equal(GENERATE(1, 2, 3, 4),
                  {"train.grad_accum_steps=3", "train.reduce_order=micro_first", "data.micro_batch=3"});
}

TEST_CASE("every strategy gives the same bits: a unit that occurs three times", "[equivalence]") {
  check_all_equal(GENERATE(1, 2, 3), {"model.repeat=2"});
  check_all_equal(2, {"model.repeat=1", "train.grad_accum_steps=2", "train.reduce_order=micro_first"});
}

TEST_CASE("recomputed activations change no bit under any strategy", "[equivalence]") {
  const int world = GENERATE(1, 3);
  const Result kept = run(kReference, world, {"train.grad_accum_steps=2"});
  for (const char* every : {"1", "2"}) {
    const Options options = {std::string("train.recompute=") + every, "train.grad_accum_steps=2"};
    check_all_equal(world, options);
    const Result recomputed = run(kReference, world, options);
    check_same_bits(kept, recomputed);
  }
}

TEST_CASE("shards inside nodes and replicas across them give the bits of sums in blocks", "[equivalence]") {
  const auto options = GENERATE(Options{}, Options{"train.grad_accum_steps=3"},
                                Options{"--optimizer", "lamb", kManyBlocks}, Options{"precision.compute=bf16"});
  Options blocks = {"train.reduce_block=2", "run.ranks_per_node=2", "data.micro_batch=3"};
  blocks.insert(blocks.end(), options.begin(), options.end());
  const Result reference = run(kReference, 4, blocks);
  for (const char* comm : {"loop", "shm"}) {
    for (const char* windows : {"comm.windows=auto", "comm.windows=copy"}) {
      const Result hybrid = run({"fsdp", comm, {"strategy.sharding_strategy=hybrid_shard", windows}}, 4, blocks);
      check_same_bits(reference, hybrid);
      check_plan(hybrid);
    }
  }
}

TEST_CASE("every strategy gives the same bits: tight clipping with momentum and more ranks than blocks",
          "[equivalence]") {
  check_all_equal(GENERATE(4, 8),
                  {"--optimizer", "sgd", "optimizer.momentum=0.9", "train.clip_norm=0.05", "data.micro_batch=2"});
}

TEST_CASE("every strategy gives the same bits: blocks of two ranks in the order of sums", "[equivalence]") {
  check_all_equal(4, {"train.reduce_block=2", "data.micro_batch=5"});
}

TEST_CASE("every strategy skips the step whose gradient has a NaN, and continues with the same bits", "[equivalence]") {
  check_all_equal(2, {"model.nan_at_step=5"});
  const Result result = run(kZero3, 2, {"model.nan_at_step=5"});
  for (const auto& step : result.record.steps) {
    CHECK(step.at("skipped").get<bool>() == (step.at("step") == 5));
    CHECK(step.at("grad_norm").is_null() == (step.at("step") == 5));
    CHECK(step.at("loss").is_number());
  }
}

TEST_CASE("two runs give the same file", "[equivalence]") {
  const Result first = run(kZero3, 3, {}), second = run(kZero3, 3, {});
  check_same_bits(second, first);
}

TEST_CASE("the loss falls, and the world size changes it only by rounding", "[equivalence]") {
  const Result one = run(kDdp, 1, {"data.micro_batch=12"});
  CHECK(one.record.steps.back().at("loss").get<double>() < 0.98 * one.record.steps.front().at("loss").get<double>());
  for (const int world : {2, 3, 4}) {
    const Result other = run(kZero3, world, {"data.micro_batch=" + std::to_string(12 / world)});
    for (size_t i = 0; i < one.record.steps.size(); ++i) {
      const double expected = one.record.steps[i].at("loss");
      CHECK(other.record.steps[i].at("loss").get<double>() == Approx(expected).epsilon(1e-5));
    }
  }
}
