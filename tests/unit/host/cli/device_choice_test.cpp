// SPDX-License-Identifier: Apache-2.0
//
// What device.plugin=auto means, and the number of ranks.
#include "cli/device_choice.hpp"

#include <catch2/catch.hpp>

#include "engine/services/interfaces.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;

namespace {

DeviceChoice chosen(const char* plugin, const char* gpu, int gpus) {
  const Registry registry(&host_interface, DDHOST_BUILD_DIR);
  Config config;
  config.set("device.plugin", plugin, "test");
  config.set("device.gpu", gpu, "test");
  return choose_device(config, registry, gpus);
}

}  // namespace

TEST_CASE("auto is the device for GPUs where one is visible and there is such a plugin, and the CPU elsewhere",
          "[prepare]") {
  CHECK(chosen("auto", "sim", 0).plugin == "cpu");
  CHECK(chosen("auto", "sim", 0).reason == "no GPU is visible");
  CHECK(chosen("auto", "sim", 1).plugin == "sim");
  CHECK(chosen("auto", "sim", 1).reason == "1 GPU is visible");
  CHECK(chosen("auto", "sim", 2).reason == "2 GPUs are visible");
  for (const char* missing : {"none", "zero1"}) {  // zero1 is there, but is no device
    CHECK(chosen("auto", missing, 2).plugin == "cpu");
    CHECK(chosen("auto", missing, 2).reason ==
          std::string("2 GPUs are visible, but there is no device '") + missing + "'");
  }
}

TEST_CASE("a device that is named is taken, whether GPUs are visible or not", "[prepare]") {
  for (const int gpus : {0, 2})
    for (const char* name : {"cpu", "sim", "path/of.so:mine"}) {
      CHECK(chosen(name, "sim", gpus).plugin == name);
      CHECK(chosen(name, "sim", gpus).reason.empty());
    }
}

TEST_CASE("there is one rank for each visible GPU, two on the CPU, and as many as are asked for", "[prepare]") {
  const DeviceChoice cpu{"cpu", ""}, gpu{"sim", ""};
  CHECK(resolve_world_size(std::nullopt, gpu, 4) == 4);
  CHECK(resolve_world_size(std::nullopt, gpu, 0) == 2);
  CHECK(resolve_world_size(std::nullopt, cpu, 4) == 2);
  CHECK(resolve_world_size(3, gpu, 4) == 3);
  CHECK(resolve_world_size(3, cpu, 0) == 3);
  for (const int64_t bad : {int64_t{0}, int64_t{-1}, int64_t{1025}})
    CHECK_THAT(test::sentence_of([&] { (void)resolve_world_size(bad, cpu, 0); }), Catch::Contains("1 to 1024"));
}
