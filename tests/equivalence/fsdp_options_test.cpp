// SPDX-License-Identifier: Apache-2.0
//
// Options of fsdp that change memory and messages: resharding to smaller groups after forward, and segments in host
// memory. They change no bit, and memory and calls equal the plan.
#include "equivalence/variants.hpp"

using namespace ddhost::test;
using Catch::Contains;

namespace {

constexpr int kSteps = 6;
const Options kCopies = {"comm.windows=copy", "comm.poison=true"};
const Options kSim = {"--device",        "sim", "device.delay_us=30", "device.jitter_us=100", "device.seed=5",
                      "comm.poison=true"};

Options operator+(Options a, const Options& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string reshard_to(int k) { return "strategy.reshard_after_forward=" + std::to_string(k); }

// Bytes of parameters on all ranks when the run ends.
uint64_t params_at_end(const Result& result) {
  uint64_t bytes = 0;
  for (const auto& rank : result.record.summary.at("ranks"))
    bytes += rank.at("memory_bytes").at("param").at("now").get<uint64_t>();
  return bytes;
}

std::string sentence_of(const Options& options) {
  const Result result = attempt({{"fsdp", "loop", options}, 4, {}, kSteps});
  CHECK(result.code != 0);
  return result.err;
}

void check(const Result& reference, const Options& options, int world) {
  const Result other = run({"fsdp", "loop", options}, world, reference.cell.options, kSteps);
  check_same_bits(reference, other);
  check_plan(other);
  check_counts(other);
}

}  // namespace

TEST_CASE("parameters resharded to smaller groups after forward change no bit, and memory and calls are planned",
          "[equivalence]") {
  const auto options = GENERATE(Options{}, Options{"train.grad_accum_steps=3", "train.recompute=2"},
                                Options{"train.grad_accum_steps=2", "train.reduce_order=micro_first", "model.repeat=1"},
                                Options{"precision.compute=bf16", "train.eval_every=2"});
  const Result reference = run(kReference, 4, options, kSteps);
  check(reference, {reshard_to(2)}, 4);
  for (const int k : {1, 2, 4}) check(reference, kCopies + Options{reshard_to(k)}, 4);
  check(reference,
        kCopies + Options{reshard_to(2), "strategy.backward_prefetch=none", "strategy.auto_wrap_policy=size",
                          "strategy.min_num_params=200"},
        4);
  check(reference, kSim + Options{reshard_to(2)}, 4);
}

TEST_CASE("resharding to groups inside a shard group of a node changes no bit", "[equivalence]") {
  const Options blocks = {"train.reduce_block=4", "data.micro_batch=2"};
  const Result reference = run(kReference, 8, blocks, kSteps);
  check(reference, kCopies + Options{"strategy.sharding_strategy=hybrid_shard", "strategy.shard_size=4", reshard_to(2)},
        8);
}

TEST_CASE("three and four replicas of nodes give the bits of sums in blocks, and memory and calls are planned",
          "[equivalence]") {
  const int world = GENERATE(6, 8);
  const auto options =
      GENERATE(Options{}, Options{"train.grad_accum_steps=3"},
               Options{"train.grad_accum_steps=2", "train.reduce_order=micro_first", "--optimizer", "lamb"},
               Options{"precision.compute=bf16", "precision.reduce_dtype=bf16"});
  const Result reference =
      run(kReference, world, options + Options{"train.reduce_block=2", "data.micro_batch=2"}, kSteps);
  const auto* mode = GENERATE("hybrid_shard", "hybrid_shard_zero2");
  const Options hybrid = {std::string("strategy.sharding_strategy=") + mode, "strategy.shard_size=2"};
  check(reference, hybrid, world);
  check(reference, kCopies + hybrid, world);
}

TEST_CASE("a smaller group holds one more copy of the model if views are copies", "[memory]") {
  const Result plain = run({"fsdp", "loop", kCopies}, 4, {}, kSteps),
               pairs = run({"fsdp", "loop", kCopies + Options{reshard_to(2)}}, 4, {}, kSteps),
               shared = run({"fsdp", "loop", {}}, 4, {}, kSteps),
               shared_pairs = run({"fsdp", "loop", {reshard_to(2)}}, 4, {}, kSteps);
  // At the end: the peak buffers for open views, the model once for all ranks, and once more for each pair.
  const uint64_t model = params_at_end(shared);
  CHECK(params_at_end(pairs) - params_at_end(plain) == 2 * model);
  CHECK(params_at_end(shared_pairs) == model);
}

TEST_CASE("a number that does not divide the ranks into groups is refused", "[equivalence]") {
  CHECK_THAT(sentence_of({reshard_to(3)}), Contains("strategy.reshard_after_forward=3") && Contains("divides"));
  CHECK_THAT(sentence_of({reshard_to(8)}), Contains("groups of 8 ranks in a shard group of 4"));
  CHECK_THAT(sentence_of({reshard_to(0)}), Contains("1 to 1048576"));
  CHECK_THAT(sentence_of({reshard_to(2), "strategy.sharding_strategy=shard_grad_op"}), Contains("use full_shard"));
  CHECK(attempt({{"fsdp", "loop", {reshard_to(1), "strategy.sharding_strategy=shard_grad_op"}}, 4, {}, kSteps}).code ==
        0);
  CHECK_THAT(sentence_of({reshard_to(2), "strategy.cpu_offload=true"}), Contains("set one of them to false"));
}

TEST_CASE("an option of a mode that was not chosen is refused", "[equivalence]") {
  for (const char* mode : {"full_shard", "shard_grad_op", "no_shard"}) {
    const std::string chosen = std::string("strategy.sharding_strategy=") + mode;
    CHECK_THAT(sentence_of({"strategy.shard_size=2", chosen}),
               Contains("strategy.shard_size=2 changes nothing with " + chosen) && Contains("use hybrid_shard"));
  }
  for (const char* policy : {"unit", "none"}) {
    const std::string chosen = std::string("strategy.auto_wrap_policy=") + policy;
    CHECK_THAT(sentence_of({"strategy.min_num_params=200", chosen}),
               Contains("strategy.min_num_params=200 changes nothing with " + chosen) && Contains("use size"));
  }
}

TEST_CASE("the state of a rank can be in host memory under every mode: same bits, planned memory and calls",
          "[equivalence]") {
  const auto options =
      GENERATE(Options{}, Options{"train.grad_accum_steps=3"},
               Options{"train.grad_accum_steps=2", "train.reduce_order=micro_first", "model.repeat=1"},
               Options{"precision.compute=bf16", "--optimizer", "lamb"},
               Options{"precision.compute=fp16", "--optimizer", "muon", kManyBlocks, "model.nan_at_step=3"});
  const Result reference = run(kReference, 4, options, kSteps);
  const Options offload = {"strategy.cpu_offload=true"};
  for (const Options& device : {Options{}, kCopies, kSim}) check(reference, device + offload, 4);
  check(reference, kCopies + offload + Options{"strategy.sharding_strategy=shard_grad_op"}, 4);
  check(reference, offload + Options{"strategy.sharding_strategy=no_shard", "strategy.auto_wrap_policy=none"}, 4);
}

TEST_CASE("replicas of state in host memory stay equal", "[equivalence]") {
  const auto options = GENERATE(Options{}, Options{"train.grad_accum_steps=2"});
  const Result reference = run(kReference, 4, options + Options{"train.reduce_block=2"}, kSteps);
  for (const Options& device : {Options{}, kSim})
    check(reference,
          device + Options{"strategy.offload_params=true", "strategy.sharding_strategy=hybrid_shard",
                           "strategy.shard_size=2"},
          4);
}

// 16 bytes for each of 63 thousand parameters exceed one rank's device; the units in flight fit.
TEST_CASE("a model whose states exceed the device's memory trains with cpu_offload", "[memory]") {
  const Options model = {"model.layers=12", "model.width=40", "model.hidden=64"};
  const Options small = kSim + Options{"device.capacity_bytes=262144"};
  const Result refused = attempt({{"fsdp", "loop", small + Options{"run.allow_overcommit=true"}}, 2, model, kSteps});
  CHECK(refused.code != 0);
  CHECK_THAT(refused.err, Contains("device.capacity_bytes"));
  const Result reference = run(kReference, 2, model, kSteps);
  check(reference, small + Options{"strategy.cpu_offload=true"}, 2);
}

// With ZeRO-2 the optimizer state, 8 bytes for each parameter on one rank, leaves the device's memory for pinned memory.
TEST_CASE("a model whose optimizer state exceeds the device's memory trains with zero2 that offloads it", "[memory]") {
  const Options model = {"model.layers=12", "model.width=40", "model.hidden=64"};
  const Options small = kSim + Options{"device.capacity_bytes=900000"};
  const Result refused = attempt({{"zero2", "loop", small + Options{"run.allow_overcommit=true"}}, 1, model, kSteps});
  CHECK(refused.code != 0);
  CHECK_THAT(refused.err, Contains("device.capacity_bytes") && Contains(", optim "));
  const Result reference = run(kReference, 1, model, kSteps);
  check_same_bits(
      reference,
      run({"zero2", "loop", small + Options{"strategy.offload_optimizer.device=cpu", "strategy.buffer_bytes=65536"}}, 1,
          model, kSteps));
}
