// SPDX-License-Identifier: Apache-2.0
//
// What device.plugin=auto means, and the number of ranks.
#include "plan/device_choice.hpp"

#include <catch2/catch.hpp>
#include <fstream>

#include "engine/services/tables/interfaces.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/setting.hpp"
#include "fixtures/harness/throws.hpp"
#include "plugin/linked.hpp"

using namespace ddhost;
using Catch::Contains;

namespace {

using Answers = std::vector<DeviceAnswer>;

DeviceAnswer answer(const std::string& plugin, int present, const std::string& problem = "") {
  return {plugin, present, "", problem};
}

// The choice where the file of the device `sim` gives `answers`.
DeviceChoice chosen(const std::string& plugin, const Answers& answers, std::optional<int64_t> nproc = std::nullopt,
                    const std::string& folder = DDHOST_BUILD_DIR) {
  const Registry registry(&host_interface, folder, linked_plugins());
  Config config;
  config.set("device.plugin", plugin, "test");
  config.set("run.nproc", nproc ? Json(*nproc) : Json(), "test");
  return choose_device(config, registry, folder, [&](const std::filesystem::path& file) {
    return file.stem() == "sim" ? answers : Answers{answer(file.stem().string(), 0)};
  });
}

}  // namespace

TEST_CASE("auto is the device that is present, and the linked one where none is", "[prepare]") {
  const DeviceChoice none = chosen("auto", {answer("sim", 0)});
  CHECK(none.plugin == "cpu");
  CHECK(none.reason == "no other device is present");
  CHECK(none.present == 0);
  const DeviceChoice one = chosen("auto", {answer("sim", 1)});
  CHECK(one.plugin == "sim");
  CHECK(one.reason == "1 device of 'sim' is present");
  const DeviceChoice two = chosen("auto", {answer("sim", 2)});
  CHECK(two.reason == "2 devices of 'sim' are present");
  CHECK(two.present == 2);
}

TEST_CASE("auto does not choose between two devices that are present", "[prepare]") {
  CHECK_THAT(test::sentence_of([] {
               (void)chosen("auto", {answer("sim", 1), answer("other", 4)});
             }),
             Contains("4 devices of 'other' and 1 device of 'sim'") && Contains("--device other"));
}

TEST_CASE("a device that can't be asked, or a file that can't be read, gives a warning", "[prepare]") {
  const DeviceChoice unasked = chosen("auto", {answer("sim", 0, "it has no power")});
  CHECK(unasked.plugin == "cpu");
  REQUIRE(unasked.warnings.size() == 1);
  CHECK_THAT(unasked.warnings[0],
             Contains("can't ask device 'sim'") && Contains("sim.so'") && Contains("it has no power"));
  const test::TempFolder folder;
  std::filesystem::create_directory(folder.path() / "plugins");
  std::ofstream(folder.file("plugins/npu.so")) << "damaged";
  const DeviceChoice unread = chosen("auto", {}, std::nullopt, folder.path().string());
  CHECK(unread.plugin == "cpu");
  REQUIRE(unread.warnings.size() == 1);
  CHECK_THAT(unread.warnings[0], Contains("plugins/npu.so'") && Contains("is not an ELF file"));
}

TEST_CASE("one device in two folders is one device, which loading then refuses to choose from", "[prepare]") {
  const test::TempFolder folder;
  std::filesystem::create_directories(folder.path() / "plugins");
  std::filesystem::create_directories(folder.path() / "more");
  for (const char* where : {"plugins", "more"})
    std::filesystem::create_symlink(DDHOST_BUILD_DIR "/plugins/sim.so", folder.path() / where / "sim.so");
  std::filesystem::remove(folder.path() / "more" / "sim.so");
  std::filesystem::copy_file(DDHOST_BUILD_DIR "/plugins/sim.so", folder.path() / "more" / "sim.so");
  const test::Setting more("DDHOST_PLUGIN_PATH", folder.file("more"));
  const DeviceChoice choice = chosen("auto", {answer("sim", 2)}, std::nullopt, folder.path().string());
  CHECK(choice.plugin == "sim");
  CHECK(choice.present == 2);
  Registry registry(&host_interface, folder.path());
  CHECK_THAT(test::sentence_of([&] { (void)registry.find(DDH_KIND_DEVICE, "sim", "."); }), Contains("give the path"));
}

TEST_CASE("a device that is named is taken, whether it is present or not", "[prepare]") {
  for (const int count : {0, 2})
    for (const char* name : {"cpu", "sim", "path/of.so:mine"}) {
      CHECK(chosen(name, {answer("sim", count)}).plugin == name);
      CHECK(chosen(name, {answer("sim", count)}).reason.empty());
    }
}

TEST_CASE("there is one rank for each device that is present, two on others, and as many as are asked for",
          "[prepare]") {
  const Answers four = {answer("sim", 4)};
  const auto ranks = [](const DeviceChoice& device) { return resolve_world_size(std::nullopt, device); };
  for (const char* device : {"auto", "sim", "plugins/sim.so", "plugins/sim.so:sim"})
    CHECK(ranks(chosen(device, four)) == 4);
  for (const char* device : {"cpu", "none", "plugins/none.so"}) CHECK(ranks(chosen(device, four)) == 2);
  CHECK(ranks(chosen("auto", {answer("sim", 5000)})) == 1024);
  CHECK(chosen("sim", four, 3).present == 0);  // nobody needs to know
  CHECK(resolve_world_size(3, chosen("auto", four)) == 3);
  for (const int64_t bad : {int64_t{0}, int64_t{-1}, int64_t{1025}})
    CHECK_THAT(test::sentence_of([&] { (void)resolve_world_size(bad, {}); }), Contains("1 to 1024"));
}
