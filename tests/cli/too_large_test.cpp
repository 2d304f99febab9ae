// SPDX-License-Identifier: Apache-2.0
//
// Runs that are too large for the memory that they may take: of shipped models for a process of 6 GiB of addresses, and of the
// toy model for a small device. Each is refused before it takes memory. `--fit` starts the small ones with less.
#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <thread>

#include "fixtures/harness/toy_run.hpp"
#include "limited_runs.hpp"

using namespace ddhost::test;
using Catch::Contains;

namespace {

constexpr rlim_t kAddresses = rlim_t{6} << 30;  // bytes of each process

void limit_addresses() {
  const rlimit limit{kAddresses, kAddresses};
  setrlimit(RLIMIT_AS, &limit);
}

// The largest resident memory that a child has had, with its own children.
uint64_t most_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

struct TooLarge {
  std::string config, strategy;
  int n_ranks;
  Words options;
  std::string tag;  // the first that does not fit
};

void check_refused(const TooLarge& run) {
  const TempFolder folder;
  const std::string config = std::string(DDHOST_SOURCE_DIR "/configs/") + run.config + ".json";
  const auto begin = std::chrono::steady_clock::now();
  Process process(joined({"--config", config, "--strategy", run.strategy, "--nproc", std::to_string(run.n_ranks),
                          "run.dir=" + folder.file("run")},
                         run.options),
                  limit_addresses);
  const int code = process.wait();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  INFO(process.command() << "\n" << process.err());
  CHECK(code == 1);
  CHECK_THAT(process.err(),
             Contains("the run does not fit: ") && Contains("ulimit -v") && Contains("suffice for " + run.tag));
  CHECK(!std::filesystem::exists(folder.file("run")));
  CHECK(taken.count() < 15);  // it takes one; the machine may be busy
}

}  // namespace

TEST_CASE("runs of shipped models that are too large are refused before they take memory", "[cli]") {
  const std::vector<TooLarge> runs = {{"gpt2_xl", "ddp", 4, {}, "grad"},
                                      {"gpt2_xl", "zero1", 2, {}, "grad"},
                                      {"gpt2_xl", "zero3", 2, {}, "optim"},
                                      {"gpt2_large", "ddp", 3, {}, "optim"},
                                      {"gpt2_medium", "zero2", 2, {"data.micro_batch=64"}, "act"},
                                      {"cad_mllm_8b", "zero3", 2, {}, "param"},
                                      {"vit_h", "ddp", 2, {}, "optim"},
                                      {"vit_b", "zero3", 2, {"data.micro_batch=512"}, "act"}};
  for (const TooLarge& run : runs) check_refused(run);
  // LibTorch, which is loaded for the plan, and no tensor of the run.
  CHECK(most_resident_bytes() < uint64_t{1} << 30);
}

TEST_CASE("a run of many ranks for each core is refused before they start, with changes that fit", "[cli]") {
  const TempFolder folder;
  const unsigned ranks = std::clamp(2 * std::thread::hardware_concurrency(), 4U, 16U);
  const Said said = call_ddhost({"--config", DDHOST_SOURCE_DIR "/configs/gpt2_xl.json", "--strategy", "ddp", "--nproc",
                                 std::to_string(ranks), "train.steps=1", "run.dir=" + folder.file("run")});
  INFO(said.err);
  CHECK(said.code == 1);
  CHECK_THAT(said.err, Contains("the run does not fit: " + std::to_string(ranks) + " ranks will take"));
  CHECK_THAT(said.err, Contains("it fits with "));
  CHECK_THAT(said.err, !Contains("planned for each rank"));  // which rank 0 says
  CHECK(!std::filesystem::exists(folder.file("run")));
}

TEST_CASE("a run whose checkpoints are too large for the disk is refused before it takes memory", "[cli]") {
  const TempFolder folder;
  const Said said =
      call_ddhost({"--config", DDHOST_SOURCE_DIR "/configs/gpt_tiny.json", "--nproc", "2", "train.steps=1000000000",
                   "checkpoint.every=1", "checkpoint.keep_last=100000000", "run.dir=" + folder.file("run")});
  INFO(said.err);
  CHECK(said.code == 1);
  CHECK_THAT(said.err, Contains("the checkpoints of this run need ") && Contains("lower checkpoint.keep_last"));
  CHECK_THAT(said.err, Contains("planned for each rank") && !Contains(" parameters, "));  // which a run says that began
  CHECK(!std::filesystem::exists(folder.file("run")));
}

TEST_CASE("runs that are too large for a device are refused, and start with what fits", "[cli]") {
  const Words model = {"model.layers=12", "model.width=40", "model.hidden=64", "--device", "sim", "train.steps=3"};
  struct Small {
    std::string strategy;
    int n_ranks;
    uint64_t capacity;  // bytes of each rank's device
  };
  for (const auto& [strategy, n_ranks, capacity] :
       {Small{"ddp", 2, 900'000}, Small{"ddp", 4, 800'000}, Small{"zero1", 4, 600'000}, Small{"zero2", 4, 500'000}}) {
    const Words options = joined(model, {"--strategy", strategy, "--nproc", std::to_string(n_ranks)});
    const std::string little = "device.capacity_bytes=" + std::to_string(capacity);
    const ToyRun refused = toy_run(options, {little});
    INFO(strategy << ", " << n_ranks << " ranks, " << capacity << " bytes: " << refused.err);
    CHECK(refused.code == 1);
    CHECK_THAT(refused.err, Contains("the run does not fit: rank 0 will take") && Contains("it fits with "));
    const ToyRun fitted = ran(toy_run(options, {little, "--fit"})), large = ran(toy_run(options));
    CHECK_THAT(fitted.err, Contains("--fit: the run starts with "));
    REQUIRE(fitted.record.steps.size() == 3);
    for (size_t i = 0; i < 3; ++i) CHECK(fitted.record.steps[i].at("loss") == large.record.steps[i].at("loss"));
  }
}

TEST_CASE("runs that are too large for the addresses of a process are refused, and start with what fits", "[cli]") {
  const std::string gpt = DDHOST_SOURCE_DIR "/configs/gpt_tiny.json", vit = DDHOST_SOURCE_DIR "/configs/vit_tiny.json";
  const Words steps = {"train.steps=2", "train.eval_every=0"};
  constexpr uint64_t kLow = 1'100'000'000, kMB = 1'000'000;
  check_fitted(run_with_addresses,
               joined({"--config", gpt, "--nproc", "2", "--strategy", "zero1", "model.n_embd=1024"}, steps), kLow,
               60 * kMB);
  check_fitted(run_with_addresses,
               joined({"--config", gpt, "--nproc", "4", "--strategy", "ddp", "model.n_embd=768"}, steps), kLow,
               30 * kMB);
  check_fitted(run_with_addresses, joined({"--config", vit, "--nproc", "1", "data.micro_batch=256"}, steps), kLow,
               50 * kMB);
}

// There an offload to the host's memory takes more than it saves.
TEST_CASE("on a device without memory of its own --fit takes the nearest strategy, which offloads nothing", "[cli]") {
  const TempFolder folder;
  Process process(
      {"--config", DDHOST_SOURCE_DIR "/configs/gpt_tiny.json", "--nproc", "2", "--strategy", "ddp", "model.n_embd=1024",
       "train.steps=2", "run.sample_tokens=0", "run.quiet=true", "--fit", "run.dir=" + folder.file("run")},
      [] {
        const rlimit limit{1'650'000'000, 1'650'000'000};
        setrlimit(RLIMIT_AS, &limit);
      });
  const int code = process.wait(std::chrono::seconds(200));
  INFO(process.err());
  CHECK(code == 0);
  CHECK_THAT(process.err(), Contains("--fit: the run starts with strategy.plugin=zero1"));
}
