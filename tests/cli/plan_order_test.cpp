// SPDX-License-Identifier: Apache-2.0
//
// The order of the strategies by memory, as `ddhost plan` counts it for the shipped configs and as runs measure it: each takes
// at most what the one before takes. Without that, the advice of an error and of docs/strategies would be wrong.
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "fixtures/harness/ddhost_process.hpp"

using namespace ddhost::test;
namespace fs = std::filesystem;

namespace {

std::vector<fs::path> shipped_configs() {
  std::vector<fs::path> out;
  for (const fs::directory_entry& entry : fs::directory_iterator(DDHOST_SOURCE_DIR "/configs"))
    if (entry.path().extension() == ".json" && entry.path().stem() != "defaults") out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  REQUIRE(out.size() > 20);
  return out;
}

// Bytes of all ranks by strategy; pages that ranks share count once.
std::map<std::string, uint64_t> planned(const Words& words) {
  const Said said = call_ddhost(joined({"plan", "--json"}, words));
  INFO(said.err);
  REQUIRE(said.code == 0);
  std::map<std::string, uint64_t> out;
  const nlohmann::json plans = nlohmann::json::parse(said.out);
  for (const nlohmann::json& one : plans.at("plans"))
    out[one.at("strategy")] = one.at("unique_bytes_of_all_ranks").get<uint64_t>();
  return out;
}

constexpr const char* kOffloaded = "zero3_offload with nvme";
constexpr const char* kOrder[] = {"ddp", "zero1", "zero2", "zero3", kOffloaded};
const Words kToFile = {"strategy.offload_optimizer.device=nvme",
                       "strategy.nvme_path=" + fs::temp_directory_path().string()};

// Files are read in whole blocks, so a few of these are in memory even if the state is smaller (docs/strategies/README.md).
constexpr uint64_t kMostBlocks = 35 * 1000;  // bytes of a rank
bool has_small_state(const std::string& config) {
  return config == "kgat_tiny" || config == "cad_mllm_tiny" || config == "cad_mllm_dummy";
}

void check_order(const std::string& config, const std::string& what, int world, std::map<std::string, uint64_t> bytes) {
  if (has_small_state(config))
    bytes.at(kOffloaded) -= std::min(bytes.at(kOffloaded), static_cast<uint64_t>(world) * kMostBlocks);
  for (size_t i = 1; i < std::size(kOrder); ++i) {
    INFO(config << ", " << what << ", " << world << " ranks: " << kOrder[i] << " against " << kOrder[i - 1]);
    REQUIRE(bytes.count(kOrder[i]) + bytes.count(kOrder[i - 1]) == 2);
    CHECK(bytes[kOrder[i]] <= bytes[kOrder[i - 1]]);
  }
}

Words run_of(const fs::path& config, int world, const std::string& compute) {
  return {"--config", config.string(), "--nproc", std::to_string(world), "precision.compute=" + compute};
}

void check_planned_order(const fs::path& config, int world, const std::string& compute) {
  const Words run = run_of(config, world, compute);
  auto bytes = planned(joined(run, {"--all-strategies"}));
  bytes[kOffloaded] = planned(joined(joined(run, {"--strategy", "zero3_offload"}), kToFile)).at("zero3_offload");
  check_order(config.stem().string(), compute, world, bytes);
}

// A run of two steps. Options of the config that make it longer are taken back.
std::map<std::string, uint64_t> measured(const Words& run) {
  std::map<std::string, uint64_t> out;
  for (const std::string name : kOrder) {
    const bool offloads = name == kOffloaded;
    const TempFolder folder;
    const Said said = call_ddhost(
        joined(joined(joined(run, {"--strategy", offloads ? "zero3_offload" : name, "--comm", "shm"}),
                      offloads ? kToFile : Words()),
               {"train.epochs=null", "train.phases=null", "train.cycles=null", "train.steps=2", "train.eval_every=0",
                "train.eval_every_epochs=0", "run.quiet=true", "run.sample_tokens=0", "run.dir=" + folder.file("run")}),
        std::chrono::seconds(600));
    INFO(said.err);
    REQUIRE(said.code == 0);
    const nlohmann::json peaks = read_run(folder.path() / "run").summary.at("unique_peak_bytes");
    for (const char* tag : {"param", "grad", "optim", "comm"}) out[name] += peaks.at(tag).get<uint64_t>();
  }
  return out;
}

void check_measured_order(const fs::path& config, const Words& run, int world, const std::string& compute) {
  const auto bytes = measured(run);
  std::printf("%-28s %s, %d ranks, bytes:", config.stem().c_str(), compute.c_str(), world);
  for (const char* name : kOrder) std::printf(" %s %llu", name, static_cast<unsigned long long>(bytes.at(name)));
  std::printf("\n");
  check_order(config.stem().string(), "measured, " + compute, world, bytes);
}

}  // namespace

// Each kind of model, and those of which one unit has most of the parameters. "[.all]" has all configs.
TEST_CASE("each strategy is planned to take at most the memory of the one before", "[cli]") {
  for (const char* name : {"cad_mllm_tiny", "cnn_basic", "cnn_vgg11", "gpt_tiny", "kgat_tiny", "vit_s"}) {
    const fs::path config = std::string(DDHOST_SOURCE_DIR "/configs/") + name + ".json";
    check_planned_order(config, 2, "fp32");
    check_planned_order(config, 4, "bf16");
  }
}

// Bytes of gradients of the largest rank.
uint64_t planned_grads(const Words& words, const std::string& strategy) {
  const Said said = call_ddhost(joined({"plan", "--json", "--strategy", strategy}, words));
  INFO(said.err);
  REQUIRE(said.code == 0);
  return nlohmann::json::parse(said.out).at("plans").at(0).at("largest_rank").at("grad").get<uint64_t>();
}

// The dense layers of VGG are nine tenths of its parameters, in three units.
TEST_CASE("units that are most of a model take a segment and a bounded buffer for their gradients", "[cli]") {
  constexpr uint64_t kMiB = 1 << 20;
  const Words vgg = run_of(DDHOST_SOURCE_DIR "/configs/cnn_vgg11.json", 2, "bf16");
  const uint64_t full = planned_grads(vgg, "zero1");
  CHECK(full > 490 * kMiB);
  for (const char* strategy : {"zero2", "zero3", "fsdp"}) {
    INFO(strategy);
    CHECK(planned_grads(vgg, strategy) <= full / 2 + 66 * kMiB);
    CHECK(planned_grads(joined(vgg, {"strategy.grad_buffer_bytes=" + std::to_string(32 * kMiB)}), strategy) <=
          full / 2 + 34 * kMiB);
  }
}

// Data with the numbers of users, items and entities of amazon-book, and few edges.
TEST_CASE("the table of embeddings of a KGAT takes less with zero2 and zero3 than with zero1", "[cli]") {
  const TempFolder folder;
  const auto write = [&](const char* name, const std::string& text) { std::ofstream(folder.file(name)) << text; };
  write("train.txt", "0 0 1\n70678 24914\n");
  write("test.txt", "0 2\n");
  write("kg_final.txt", "0 38 88571\n1 0 24915\n");
  for (const int world : {2, 4}) {
    const Words kgat = joined(run_of(DDHOST_SOURCE_DIR "/configs/kgat_lastfm.json", world, "fp32"),
                              {"data.path=" + folder.path().string()});
    const auto bytes = planned(joined(kgat, {"--all-strategies"}));
    CHECK(bytes.at("zero1") < bytes.at("ddp"));
    CHECK(bytes.at("zero2") < bytes.at("zero1"));
    CHECK(bytes.at("zero3") <= bytes.at("zero2"));
  }
}

TEST_CASE("each strategy takes at most the memory of the one before", "[cli]") {
  for (const char* name : {"cnn_tiny", "kgat_tiny", "vit_tiny"}) {
    const fs::path config = std::string(DDHOST_SOURCE_DIR "/configs/") + name + ".json";
    check_measured_order(config, run_of(config, 2, "fp32"), 2, "fp32");
  }
}

TEST_CASE(
    "each strategy is planned to take at most the memory of the one before, with 2, 4 and 8 ranks in fp32 and bf16",
    "[.all]") {
  for (const fs::path& config : shipped_configs()) {
    DYNAMIC_SECTION(config.stem().string()) {
      for (const int world : {2, 4, 8}) {
        for (const char* compute : {"fp32", "bf16"}) check_planned_order(config, world, compute);
      }
    }
  }
}

TEST_CASE("each strategy takes at most the memory of the one before, for every config that fits into 4 GiB", "[.all]") {
  constexpr uint64_t kMost = uint64_t{4} << 30;
  for (const fs::path& config : shipped_configs()) {
    DYNAMIC_SECTION(config.stem().string()) {
      for (const int world : {2, 4, 8}) {
        for (const char* compute : {"fp32", "bf16"}) {
          // Micro-batches of one sample, so that more configs fit. Those of kgat differ by program; batch norm of vectors needs
          // two samples.
          const std::string name = config.stem().string();
          const std::string samples = name == "cnn_efficientnet_b0_frozen" ? "2" : "1";
          const Words run = joined(run_of(config, world, compute),
                                   name.starts_with("kgat") ? Words() : Words{"data.micro_batch=" + samples});
          if (planned(joined(run, {"--all-strategies"})).at("ddp") <= kMost)
            check_measured_order(config, run, world, compute);
        }
      }
    }
  }
}
