// SPDX-License-Identifier: Apache-2.0
//
// Prefetching and reuse in zero3_offload: with every setting the bits equal ddp's, and memory and calls equal the plan.
#include "equivalence/variants.hpp"

using namespace ddhost::test;

namespace {

constexpr int kSteps = 4;

Options operator+(Options a, const Options& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Options kParamsInMemory = {"strategy.offload_param.device=cpu"};

Result check(const Result& reference, const Options& options) {
  Result result = run({"zero3_offload", "loop", options}, reference.cell.world, reference.cell.options, kSteps);
  check_same_bits(reference, result);
  check_plan(result);
  check_counts(result);
  return result;
}

int counted(const Result& result, const char* counter) {
  return result.record.summary.at("counters").value(counter, 0);
}

}  // namespace

TEST_CASE("recomputed units are gathered again, as often as planned", "[equivalence]") {
  const auto options = GENERATE(Options{"train.recompute=1"}, Options{"train.recompute=2", "train.grad_accum_steps=3"},
                                Options{"train.recompute=1", "train.grad_accum_steps=2", "model.repeat=1"});
  const Result reference = run(kReference, 2, options, kSteps);
  for (const char* units : {"0", "1", "3"}) {
    const Options ahead = {std::string("strategy.prefetch_units=") + units};
    check(reference, kParamsInMemory + ahead);
    check(reference, Options{"comm.windows=copy", "comm.poison=true"} + ahead);
  }
}

TEST_CASE("without prefetching a unit is gathered three times per micro-batch with recomputation, twice without",
          "[counts]") {
  const Options nothing_ahead = kParamsInMemory + Options{"strategy.prefetch_units=0"};
  const Result kept = run({"zero3_offload", "loop", nothing_ahead}, 2, {}, kSteps),
               again = run({"zero3_offload", "loop", nothing_ahead}, 2, {"train.recompute=1"}, kSteps);
  // Embedding, three layers of two spaces, and the head, which uses its bias and the embedding.
  constexpr int kSpacesUsed = 1 + 3 * 2 + 2;
  CHECK(counted(kept, "comm.all_gather") - counted(again, "comm.all_gather") == -kSteps * kSpacesUsed);
}

TEST_CASE("prefetching and keeping parameters change no bit, and memory and calls are planned", "[equivalence]") {
  const auto options = GENERATE(Options{"train.grad_accum_steps=2"}, Options{"precision.compute=bf16"},
                                Options{"train.recompute=2", "train.reduce_order=micro_first", "model.repeat=1"});
  const TempFolder folder;
  const std::string disk = "strategy.nvme_path=" + folder.path().string();
  const Result reference = run(kReference, 3, options, kSteps);
  const std::vector<Options> places = {
      {"strategy.offload_optimizer.device=cpu", "comm.windows=copy", "comm.poison=true"},
      {"strategy.offload_param.device=cpu", "strategy.offload_optimizer.device=none"},
      {"strategy.offload_param.device=nvme", "strategy.offload_optimizer.device=nvme", disk}};
  const std::vector<Options> limits = {
      {"strategy.prefetch_bytes=4000"},
      {"strategy.reuse_bytes=1000000", "strategy.max_live_bytes=5000", "strategy.overlap_comm=false"},
      {"strategy.prefetch_units=3", "strategy.max_live_bytes=3000"},
      {"strategy.reuse_bytes=3000", "strategy.prefetch_units=0"}};
  for (const Options& place : places)
    for (const Options& limit : limits) check(reference, place + limit);
  check(reference, places[0] + Options{"strategy.persistence_bytes=36"});
}

TEST_CASE("with parameters on the device, every limit gathers as often and as much as zero3", "[counts]") {
  const Options limit = GENERATE(Options{}, Options{"strategy.prefetch_bytes=4000"},
                                 Options{"strategy.reuse_bytes=1000000", "strategy.max_live_bytes=5000"},
                                 Options{"strategy.persistence_bytes=200", "strategy.overlap_comm=false"});
  const Options copies = limit + Options{"comm.windows=copy", "comm.poison=true"};
  const Result zero3 = run({"zero3", "loop", copies}, 2, {}, kSteps),
               offload = run({"zero3_offload", "loop", copies}, 2, {}, kSteps);
  for (const char* counter : {"comm.window_gathers", "comm.reduce", "comm.publish"})
    CHECK(counted(offload, counter) == counted(zero3, counter));
  for (const char* tag : {"param", "grad"}) CHECK(peak_bytes(offload, 0, tag) == peak_bytes(zero3, 0, tag));
}

TEST_CASE("DeepSpeed's names of zero3's limits are accepted, and limits that exclude offload_param are refused",
          "[options]") {
  const Options deepspeed = {"strategy.stage3_prefetch_bucket_size=1000", "strategy.stage3_max_live_parameters=2000",
                             "strategy.stage3_max_reuse_distance=3000", "strategy.contiguous_gradients=true"};
  Process process(Options{"--dry-run", "--strategy", "zero3_offload", "--model", toy_model()} + deepspeed);
  REQUIRE(process.wait() == 0);
  const auto strategy = nlohmann::json::parse(process.out()).at("strategy");
  CHECK(strategy.at("prefetch_bytes") == 4000);
  CHECK(strategy.at("max_live_bytes") == 8000);
  CHECK(strategy.at("reuse_bytes") == 12000);
  const Result refused =
      attempt({{"zero3_offload", "loop", kParamsInMemory}, 2, {"strategy.stage3_param_persistence_threshold=9"}, 1});
  CHECK(refused.code != 0);
  CHECK_THAT(refused.err,
             Catch::Contains("strategy.persistence_bytes=36") && Catch::Contains("strategy.offload_param.device=cpu"));
}
