// SPDX-License-Identifier: Apache-2.0
//
// Once a run is warm, a step calls malloc nowhere outside the model, with ranks on one host: not in the host, strategy,
// transport and optimizer. Strategies that offload list the parts of each tile anew. Steps that write a row, compare the
// replicas or save are left out.
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;

namespace {

// How often a run of two ranks calls malloc in `steps` steps: launcher, loader and ranks together.
uint64_t calls_of(int steps, const Words& options) {
  const TempFolder folder;
  const std::string counter = folder.file("calls");
  std::ofstream(counter) << std::string(sizeof(uint64_t), '\0');
  const Words args = joined({"--model", test_plugin("no_malloc"), "--nproc", "2", "run.sample_tokens=0",
                             "run.quiet=true", "run.report=false", "monitor.every=1000000", "run.check_replicas=0",
                             "train.steps=" + std::to_string(steps), "run.dir=" + counter + "-run"},
                            options);
  Process process(args, [&] {
    ::setenv("LD_PRELOAD", DDHOST_COUNT_ALLOCATIONS, 1);
    ::setenv("DDH_ALLOCATIONS", counter.c_str(), 1);
  });
  const int code = process.wait(std::chrono::seconds(60));
  INFO(process.command() << "\n" << process.err());
  REQUIRE(code == 0);
  const std::string bytes = read_text(counter);
  uint64_t calls = 0;
  REQUIRE(bytes.size() == sizeof calls);
  std::memcpy(&calls, bytes.data(), sizeof calls);
  return calls;
}

}  // namespace

TEST_CASE("a warm step calls malloc nowhere outside the model, and a bounded number of times with offload",
          "[allocations]") {
  constexpr int kFew = 100, kMany = 2100, kRanks = 2;
  const std::vector<std::pair<Words, double>> most = {
      {{"--strategy", "ddp"}, 0},           {{"--strategy", "zero1"}, 0},
      {{"--strategy", "zero2"}, 0},         {{"--strategy", "zero3"}, 0},
      {{"--strategy", "fsdp"}, 0},          {{"--strategy", "fsdp", "strategy.sharding_strategy=shard_grad_op"}, 0},
      {{"--strategy", "zero3_offload"}, 80}};
  for (const auto& [strategy, calls] : most) {
    for (const char* const micro_batches : {"1", "2"}) {
      const Words options = joined(strategy, {"train.grad_accum_steps=" + std::string(micro_batches)});
      const uint64_t few = calls_of(kFew, options), many = calls_of(kMany, options);
      REQUIRE(few > 1000);  // the library counts
      const double of_a_step = (static_cast<double>(many) - static_cast<double>(few)) / (kMany - kFew) / kRanks;
      INFO(strategy.at(1) << " with " << micro_batches << " micro-batches: " << of_a_step
                          << " calls in a step of a rank");
      CHECK(of_a_step < calls + 0.25);  // a call of one rank in each step is 0.5; starts differ by some hundred calls
    }
  }
}
