// SPDX-License-Identifier: Apache-2.0
//
// What device.plugin=auto means, and the number of ranks.
#include "plan/device_choice.hpp"

#include <catch2/catch.hpp>
#include <fstream>

#include "engine/services/tables/interfaces.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"
#include "plugin/linked.hpp"

using namespace ddhost;
using Catch::Contains;

namespace {

using Answers = std::vector<PresentDevices>;

// The choice where the file of the device `sim` gives `answers`.
DeviceChoice chosen(const std::string& plugin, const Answers& answers, std::optional<int64_t> nproc = std::nullopt,
                    const std::string& folder = DDHOST_BUILD_DIR) {
  const Registry registry(&host_interface, folder, linked_plugins());
  Config config;
  config.set("device.plugin", plugin, "test");
  config.set("run.nproc", nproc ? Json(*nproc) : Json(), "test");
  return choose_device(config, registry, folder, [&](const std::filesystem::path& file) {
    return file.stem() == "sim" ? answers : Answers{{file.stem().string(), 0, ""}};
  });
}

}  // namespace

TEST_CASE("auto is the device that is present, and the linked one where none is", "[prepare]") {
  const DeviceChoice none = chosen("auto", {{"sim", 0, ""}});
  CHECK(none.plugin == "cpu");
  CHECK(none.reason == "no other device is present");
  CHECK(none.present == 0);
  const DeviceChoice one = chosen("auto", {{"sim", 1, ""}});
  CHECK(one.plugin == "sim");
  CHECK(one.reason == "1 device of 'sim' is present");
  const DeviceChoice two = chosen("auto", {{"sim", 2, ""}});
  CHECK(two.reason == "2 devices of 'sim' are present");
  CHECK(two.present == 2);
}

TEST_CASE("auto does not choose between two devices that are present", "[prepare]") {
  CHECK_THAT(test::sentence_of([] {
               (void)chosen("auto", {{"sim", 1, ""}, {"other", 4, ""}});
             }),
             Contains("1 devices of 'sim' and 4 of 'other'") && Contains("--device sim"));
}

TEST_CASE("a device that can't be asked, or a file that can't be read, is named in the reason", "[prepare]") {
  CHECK(chosen("auto", {{"sim", 0, "it has no power"}}).reason ==
        "no other device is present; device 'sim' could not be asked: it has no power");
  const test::TempFolder folder;
  std::filesystem::create_directory(folder.path() / "plugins");
  std::ofstream(folder.file("plugins/npu.so")) << "damaged";
  const DeviceChoice choice = chosen("auto", {}, std::nullopt, folder.path().string());
  CHECK(choice.plugin == "cpu");
  CHECK_THAT(choice.reason, Contains("plugins/npu.so' is not an ELF file"));
}

TEST_CASE("a device that is named is taken, whether it is present or not", "[prepare]") {
  for (const int count : {0, 2})
    for (const char* name : {"cpu", "sim", "path/of.so:mine"}) {
      CHECK(chosen(name, {{"sim", count, ""}}).plugin == name);
      CHECK(chosen(name, {{"sim", count, ""}}).reason.empty());
    }
}

TEST_CASE("there is one rank for each device that is present, two on others, and as many as are asked for",
          "[prepare]") {
  const Answers four = {{"sim", 4, ""}};
  const auto ranks = [](const DeviceChoice& device) { return resolve_world_size(std::nullopt, device); };
  for (const char* device : {"auto", "sim", "plugins/sim.so", "plugins/sim.so:sim"})
    CHECK(ranks(chosen(device, four)) == 4);
  for (const char* device : {"cpu", "none", "plugins/none.so"}) CHECK(ranks(chosen(device, four)) == 2);
  CHECK(ranks(chosen("auto", {{"sim", 5000, ""}})) == 1024);
  CHECK(chosen("sim", four, 3).present == 0);  // nobody needs to know
  CHECK(resolve_world_size(3, chosen("auto", four)) == 3);
  for (const int64_t bad : {int64_t{0}, int64_t{-1}, int64_t{1025}})
    CHECK_THAT(test::sentence_of([&] { (void)resolve_world_size(bad, {}); }), Contains("1 to 1024"));
}
