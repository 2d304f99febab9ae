// SPDX-License-Identifier: Apache-2.0
//
// A device with its own memory and delayed streams gives the bits of the CPU. With DDHOST_DEVICE=./mine.so, or a name, in the
// environment, that device instead of sim.
#include <cstdlib>

#include "equivalence/variants.hpp"

using namespace ddhost::test;

namespace {

// A variant on a device with its own memory and delayed streams, which ends the run at the first unordered work.
// Transports get staging memory. The options of windows are those of copied windows on the CPU.
Variant on_device(const std::string& strategy, const char* comm) {
  const char* given = std::getenv("DDHOST_DEVICE");
  if (given != nullptr) return {strategy, comm, {"--device", given, "comm.poison=true"}};
  return {strategy,
          comm,
          {"--device", "sim", "device.delay_us=30", "device.jitter_us=100", "device.seed=5", "comm.poison=true"}};
}

}  // namespace

TEST_CASE("a device with its own memory has the bits of the CPU under every strategy", "[equivalence][device]") {
  const auto options = GENERATE(from_range(
      selected(3, std::vector<Options>{
                      {"train.grad_accum_steps=2", "train.reduce_order=micro_first"},
                      {"model.buffers=true", "model.derived=true", "train.eval_every=5", "train.grad_accum_steps=2"},
                      {"--optimizer", "lamb", "precision.compute=bf16"},
                      {},
                      {"train.grad_accum_steps=2", "train.reduce_order=rank_first", "train.eval_every=7"},
                      {"precision.compute=bf16"},
                      {"--optimizer", "lamb"}})));
  const Result reference = run({"ddp", "loop", {"comm.windows=copy"}}, 3, options);
  for (const std::string& strategy : taken_strategies()) {
    const Result other = run(on_device(strategy, "loop"), 3, options);
    check_same_bits(reference, other);
    check_plan(other);
  }
}

TEST_CASE("a device works with ranks as processes, and with prefetching strategies", "[equivalence][device]") {
  Variant way = on_device("zero3", "shm");
  way.options.push_back("strategy.prefetch_units=3");
  const Result reference = run(kDdp, 2, {}), other = run(way, 2, {});
  check_same_bits(reference, other);
}

TEST_CASE("the collectives of a strategy use staging on such a device", "[equivalence][device]") {
  const Options options = {"train.grad_accum_steps=2", "train.reduce_block=2"};
  Variant way = on_device("fsdp", "loop");
  way.options.emplace_back("strategy.sharding_strategy=hybrid_shard");
  way.options.emplace_back("strategy.shard_size=2");
  const Result reference = run(kDdp, 4, options), other = run(way, 4, options);
  check_same_bits(reference, other);
}

TEST_CASE("offloading to host memory and to files copies the data on a device with its own memory",
          "[equivalence][device]") {
  const auto more = GENERATE(from_range(selected(
      1, std::vector<Options>{{"precision.compute=bf16", "train.grad_accum_steps=2"}, {}, {"--optimizer", "lamb"}})));
  Options options = {"model.width=20", "model.hidden=130"};  // several tiles
  options.insert(options.end(), more.begin(), more.end());
  const Result reference = run(kDdp, 2, options, 6);
  const TempFolder folder;
  for (const std::string optimizer : {"none", "cpu", "nvme"}) {
    for (const std::string params : {"none", "cpu", "nvme", "both"}) {
      for (const std::string ratio : {"1", "0.4"}) {
        if (ratio == "1" && (optimizer == "nvme" || params == "nvme")) continue;
        Variant way = on_device("zero3_offload", "loop");
        for (const std::string& option :
             {"strategy.offload_optimizer.device=" + optimizer,
              "strategy.offload_param.device=" + (params == "both" ? "nvme" : params),
              std::string("strategy.offload_param.max_in_cpu=") + (params == "both" ? "6000" : "0"),
              "strategy.offload_optimizer.ratio=" + ratio, "strategy.nvme_path=" + folder.path().string(),
              std::string("strategy.buffer_bytes=4096"), std::string("strategy.buffer_count=2")})
          way.options.push_back(option);
        const Result other = run(way, 2, options, 6);
        check_same_bits(reference, other);
        check_plan(other);
      }
    }
  }
}

TEST_CASE("zero1, zero2 and zero3 offload optimizer state on a device with its own memory", "[equivalence][device]") {
  const auto more = GENERATE(
      from_range(selected(1, std::vector<Options>{{"precision.compute=bf16", "train.grad_accum_steps=2"}, {}})));
  Options options = {"model.width=20", "model.hidden=130"};  // several tiles
  options.insert(options.end(), more.begin(), more.end());
  const Result reference = run(kDdp, 2, options, 6);
  const TempFolder folder;
  for (const char* const strategy : {"zero1", "zero2", "zero3"}) {
    for (const std::string device : {"cpu", "nvme"}) {
      Variant way = on_device(strategy, "loop");
      for (const std::string& option :
           {"strategy.offload_optimizer.device=" + device, "strategy.nvme_path=" + folder.path().string(),
            std::string("strategy.buffer_bytes=4096"), std::string("strategy.buffer_count=2")})
        way.options.push_back(option);
      const Result other = run(way, 2, options, 6);
      check_same_bits(reference, other);
      check_plan(other);
    }
  }
}
