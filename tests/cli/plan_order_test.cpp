// SPDX-License-Identifier: Apache-2.0
//
// The order of the strategies by memory, as `ddhost plan` counts it for the shipped configs: each takes at most what the one
// before takes. Without that, the advice of an error and of docs/strategies would be wrong.
#include <catch2/catch.hpp>
#include <filesystem>
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

void check_order(const fs::path& config, int world, const std::string& compute) {
  const Words run = {"--config", config.string(), "--nproc", std::to_string(world), "precision.compute=" + compute};
  auto bytes = planned(joined(run, {"--all-strategies"}));
  const auto offloaded = planned(joined(run, {"--strategy", "zero3_offload", "strategy.offload_optimizer.device=nvme",
                                              "strategy.nvme_path=" + fs::temp_directory_path().string()}));
  // Files are read in whole blocks, so a few of these are in memory even if the state is smaller.
  const uint64_t blocks = static_cast<uint64_t>(world) * 64 * 1024;
  bytes["zero3_offload with nvme"] = offloaded.at("zero3_offload") - blocks;
  const char* const order[] = {"ddp", "zero1", "zero2", "zero3", "zero3_offload with nvme"};
  for (size_t i = 1; i < std::size(order); ++i) {
    INFO(config.stem().string() << ", " << compute << ", " << world << " ranks: " << order[i] << " against "
                                << order[i - 1]);
    REQUIRE(bytes.count(order[i]) + bytes.count(order[i - 1]) == 2);
    CHECK(bytes[order[i]] <= bytes[order[i - 1]]);
  }
}

}  // namespace

// Each kind of model, and those of which one unit has most of the parameters. "[.all]" has all configs.
TEST_CASE("each strategy is planned to take at most the memory of the one before", "[cli]") {
  for (const char* name : {"cad_mllm_tiny", "cnn_basic", "cnn_vgg11", "gpt_tiny", "kgat_tiny", "vit_s"}) {
    const fs::path config = std::string(DDHOST_SOURCE_DIR "/configs/") + name + ".json";
    check_order(config, 2, "fp32");
    check_order(config, 4, "bf16");
  }
}

TEST_CASE(
    "each strategy is planned to take at most the memory of the one before, with 2, 4 and 8 ranks in fp32 and bf16",
    "[.all]") {
  for (const fs::path& config : shipped_configs()) {
    for (const int world : {2, 4, 8}) {
      for (const char* compute : {"fp32", "bf16"}) check_order(config, world, compute);
    }
  }
}
