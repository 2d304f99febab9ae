// SPDX-License-Identifier: Apache-2.0
//
// What device.plugin=auto means, and the number of ranks.
#include "plan/device_choice.hpp"

#include <catch2/catch.hpp>
#include <fstream>

#include "engine/services/tables/interfaces.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;

namespace {

DeviceChoice chosen(const char* plugin, const char* gpu, int gpus, const char* source = "the command line",
                    const std::string& folder = DDHOST_BUILD_DIR) {
  const Registry registry(&host_interface, folder);
  Config config;
  config.set("device.plugin", plugin, "test");
  config.set("device.gpu", gpu, source);
  return choose_device(config, registry, gpus);
}

}  // namespace

TEST_CASE("auto is the device for GPUs where one is visible, and the CPU elsewhere", "[prepare]") {
  CHECK(chosen("auto", "sim", 0).plugin == "cpu");
  CHECK(chosen("auto", "sim", 0).reason == "no GPU is visible");
  CHECK(chosen("auto", "sim", 1).plugin == "sim");
  CHECK(chosen("auto", "sim", 1).reason == "1 GPU is visible");
  CHECK(chosen("auto", "sim", 2).reason == "2 GPUs are visible");
}

TEST_CASE("auto is the CPU without a plugin for GPUs, but not with one that can't be used or that the user asked for",
          "[prepare]") {
  const test::TempFolder folder;
  const auto by_default = [&] { return chosen("auto", "cuda", 2, "default", folder.path().string()); };
  CHECK(by_default().plugin == "cpu");
  CHECK(by_default().reason == "2 GPUs are visible, but there is no device 'cuda'");
  CHECK(!by_default().is_gpu);
  CHECK(chosen("auto", "none", 2).plugin == "none");

  std::filesystem::create_directory(folder.path() / "plugins");
  std::ofstream(folder.file("plugins/cuda.so")) << "damaged";
  CHECK(by_default().plugin == "cuda");
  Registry registry(&host_interface, folder.path());
  CHECK_THAT(test::sentence_of([&] { (void)registry.find(DDH_KIND_DEVICE, "cuda", "."); }),
             Catch::Contains("cuda.so'") && Catch::Contains("not an ELF file"));
}

TEST_CASE("a device that is named is taken, whether GPUs are visible or not", "[prepare]") {
  for (const int gpus : {0, 2})
    for (const char* name : {"cpu", "sim", "path/of.so:mine"}) {
      CHECK(chosen(name, "sim", gpus).plugin == name);
      CHECK(chosen(name, "sim", gpus).reason.empty());
    }
}

TEST_CASE("there is one rank for each visible GPU on the device for GPUs, two on others, and as many as are asked for",
          "[prepare]") {
  const DeviceChoice cpu{"cpu", ""}, gpu = chosen("cuda", "cuda", 4);
  CHECK(resolve_world_size(std::nullopt, gpu, 4) == 4);
  CHECK(resolve_world_size(std::nullopt, gpu, 0) == 2);
  for (const char* device : {"auto", "plugins/cuda.so", "plugins/x.so:cuda"})
    CHECK(resolve_world_size(std::nullopt, chosen(device, "cuda", 4), 4) == 4);
  for (const char* device : {"cpu", "sim", "plugins/sim.so", "plugins/cuda.so:sim"})
    CHECK(resolve_world_size(std::nullopt, chosen(device, "cuda", 4), 4) == 2);
  CHECK(resolve_world_size(3, gpu, 4) == 3);
  CHECK(resolve_world_size(3, cpu, 0) == 3);
  for (const int64_t bad : {int64_t{0}, int64_t{-1}, int64_t{1025}})
    CHECK_THAT(test::sentence_of([&] { (void)resolve_world_size(bad, cpu, 0); }), Catch::Contains("1 to 1024"));
}
