// SPDX-License-Identifier: Apache-2.0
//
// Runs in control groups with little memory. What the check before a run lets through is not killed later, though there is
// little more than the check asks for; what it refuses, --fit starts with less.
#include <catch2/catch.hpp>
#include <cstdio>

#include "fixtures/harness/memory_group.hpp"
#include "fixtures/harness/skip.hpp"
#include "limited_runs.hpp"

using namespace ddhost::test;

namespace {

constexpr uint64_t kMB = 1'000'000;

bool has_groups() {
  if (MemoryGroup(uint64_t{1} << 30).ready()) return true;
  skip("no memory cgroup of version 1 can be made here");
  return false;
}

Words run_of(const std::string& config, const std::string& strategy, int n_ranks, const Words& more) {
  return joined({"--config", DDHOST_SOURCE_DIR "/configs/" + config + ".json", "--strategy", strategy, "--nproc",
                 std::to_string(n_ranks)},
                more);
}

Limited run_in_group(const Words& words, uint64_t limit) {
  const MemoryGroup group(limit);
  REQUIRE(group.ready());
  return run_limited(words, [&] { group.enter(); });
}

}  // namespace

// The files that a run writes are in the page cache, which the kernel drops where it needs the memory.
TEST_CASE("a run that the check of its memory lets through is not killed for lack of memory", "[cli]") {
  if (!has_groups()) return;
  const Words steps = {"train.steps=3", "train.eval_every=0"};
  const Words few = {"train.epochs=null", "train.steps=2", "train.eval_every_epochs=0"};
  for (const auto& [words, low] :
       {std::pair(run_of("gpt_tiny", "ddp", 2, joined(steps, {"model.n_embd=1024"})), 400 * kMB),
        std::pair(run_of("gpt_char", "zero1", 2, steps), 200 * kMB),
        std::pair(run_of("cnn_mnist", "ddp", 2, few), 300 * kMB),
        std::pair(run_of("cnn_basic", "ddp", 1, few), 400 * kMB),
        std::pair(run_of("vit_tiny", "zero3", 2, steps), 300 * kMB),
        std::pair(run_of("cad_mllm_tiny", "zero2", 2, {"train.eval_every=0"}), 160 * kMB)}) {
    const uint64_t limit = least_limit(run_in_group, words, low);
    const Limited run = run_in_group(words, limit);
    INFO(words[1] << " with " << limit << " bytes: " << run.err);
    CHECK(run.code == 0);
    // Where its memory is not limited.
    const MemoryGroup large(uint64_t{4} << 30);
    REQUIRE(run_limited(words, [&] { large.enter(); }).code == 0);
    const double needed = static_cast<double>(large.most_used_bytes()), asked = static_cast<double>(limit);
    std::printf("%s: the check asks for %.1f MB, the run took %.1f MB\n", words[1].c_str(), asked / 1e6, needed / 1e6);
    CHECK(asked <= 1.15 * needed + 100 * kMB);
  }
}

TEST_CASE("runs that are too large for their control group are refused, and --fit starts them", "[cli]") {
  if (!has_groups()) return;
  const Words steps = {"train.steps=2", "train.eval_every=0"};
  check_fitted(run_in_group, run_of("gpt_tiny", "ddp", 2, joined(steps, {"model.n_embd=1024"})), 400 * kMB, 60 * kMB);
  check_fitted(run_in_group, run_of("gpt_tiny", "zero1", 4, joined(steps, {"model.n_embd=768"})), 400 * kMB, 20 * kMB);
  check_fitted(run_in_group, run_of("vit_tiny", "ddp", 1, joined(steps, {"data.micro_batch=128"})), 300 * kMB,
               40 * kMB);
  check_fitted(run_in_group, run_of("gpt_char", "zero3", 4, steps), 300 * kMB, 150 * kMB);
}
