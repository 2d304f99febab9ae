// SPDX-License-Identifier: Apache-2.0
//
// How often a step calls malloc once it is warm: host, strategy, transport and optimizer, with a model that computes in loops
// and allocates little itself. The goal is 0; until then the limit keeps the number from growing.
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;

namespace {

// How often a run of two ranks calls malloc in `steps` steps: launcher, loader and ranks together.
uint64_t calls_of(const TempFolder& folder, const std::string& strategy, int steps) {
  const std::string counter = folder.file(strategy + std::to_string(steps));
  std::ofstream(counter) << std::string(sizeof(uint64_t), '\0');
  Process process(Words{"--model", toy_model(), "--strategy", strategy, "--nproc", "2", "run.sample_tokens=0",
                        "run.quiet=true", "run.report=false", "monitor.every=1000",
                        "train.steps=" + std::to_string(steps), "run.dir=" + counter + "-run"},
                  [&] {
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

TEST_CASE("a warm step calls malloc a bounded number of times on a rank", "[allocations]") {
  constexpr int kFew = 40, kMany = 140, kRanks = 2;
  for (const std::string strategy : {"ddp", "zero3"}) {
    const TempFolder folder;
    const uint64_t few = calls_of(folder, strategy, kFew), many = calls_of(folder, strategy, kMany);
    REQUIRE(few > 1000);  // the library counts
    const double of_a_step = static_cast<double>(many - few) / (kMany - kFew) / kRanks;
    std::printf("%s: %.1f calls of malloc in a step of a rank\n", strategy.c_str(), of_a_step);
    CHECK(of_a_step < 430);  // 366 with ddp, of which the model makes about 335; 391 with zero3
  }
}
