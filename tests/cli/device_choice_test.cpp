// SPDX-License-Identifier: Apache-2.0
//
// The choice of a device by name, by path and by the machine, and the plugins that a device with its own memory refuses.
#include <catch2/catch.hpp>

#include "fixtures/harness/built.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/setting.hpp"

using namespace ddhost::test;
using Catch::Contains;

namespace {

struct Ended {
  int code;
  std::string out, err;
};
Ended train(const std::vector<std::string>& more, const std::string& model = toy_model()) {
  const TempFolder folder;
  std::vector<std::string> args = {"--model",       model,    "--nproc", "2",
                                   "train.steps=3", "--comm", "loop",    "run.dir=" + folder.file("run")};
  args.insert(args.end(), more.begin(), more.end());
  Process process(args);
  const int code = process.wait(std::chrono::seconds(60));
  return {code, process.out(), process.err()};
}

// A folder of plugins that holds a device of the tests.
struct DeviceFolder : TempFolder {
  explicit DeviceFolder(const std::string& device) {
    std::filesystem::create_symlink(std::string(DDHOST_BUILD_DIR) + "/tests/plugins/" + device + ".so",
                                    path() / (device + ".so"));
  }
};

}  // namespace

TEST_CASE("a device is chosen by name or by path, and the CPU is built in", "[device]") {
  Process list({"list"});
  CHECK(list.wait() == 0);
  CHECK_THAT(list.out(), Contains("device     cpu") && Contains("device     sim"));
  CHECK(train({"--device", "cpu"}).code == 0);
  CHECK(train({"--device", "sim", "device.jitter_us=50"}).code == 0);
  CHECK(train({"device.plugin=" + plugin_file("sim")}).code == 0);
}

TEST_CASE("a missing device is refused with the list of devices", "[device]") {
  const Ended ended = train({"--device", "simm"});
  CHECK(ended.code == 1);
  CHECK_THAT(ended.err, Contains("no device 'simm'") && Contains("did you mean 'sim'") && Contains("there are: cpu, "));
  CHECK_THAT(train({"--device", "zero1"}).err, Contains("'zero1' is a strategy, not a device"));
  CHECK_THAT(train({"device.delay_us=5"}).err, Contains("device.delay_us"));  // an option of sim, not of cpu
}

TEST_CASE("a plugin that computes on the CPU is refused on a device with its own memory", "[device]") {
  const Ended ended = train({"--device", "sim", "--strategy", fake_plugin("good")});
  CHECK(ended.code == 1);
  CHECK_THAT(ended.err, Contains("strategy 'good'") && Contains("computes in host memory and cannot use device") &&
                            Contains("choose a device with host memory, or another strategy"));
}

TEST_CASE("a model is refused on a device whose native API it does not know", "[device]") {
  if (!std::filesystem::exists(plugin_file("gpt"))) {
    WARN("skipped: a build without LibTorch has no model that knows some devices only");
    return;
  }
  const Ended ended = train({"--device", "sim"}, "gpt");
  CHECK(ended.code == 1);
  CHECK_THAT(
      ended.err,
      Contains("model 'gpt' computes in host memory and on devices of cuda, and device 'sim' is not one of these"));
}

TEST_CASE("a device whose memory is too small ends the run with an error", "[device]") {
  // Past the comparison with the plan, which also counts activations that the toy keeps on the host.
  const Words small = {"--device", "sim", "device.capacity_bytes=20000", "run.allow_overcommit=true"};
  const Ended ended = train(joined(small, {"--strategy", "ddp"}));
  CHECK(ended.code == 1);
  CHECK_THAT(ended.err, Contains("no memory for") && Contains("device.capacity_bytes") && Contains("20000"));
  CHECK(train(joined(small, {"--strategy", "zero1"})).code == 0);
}

// The example own_memory is a device from elsewhere: it is in a folder of DDHOST_PLUGIN_PATH, and the host knows nothing of it.
TEST_CASE("without a named device a run takes the device that is present, also one from elsewhere, and says why",
          "[device]") {
  const DeviceFolder plugins("own_memory");
  const Setting folder("DDHOST_PLUGIN_PATH", plugins.path().string()), present("OWN_MEMORY_DEVICES", "3");
  struct Wish {
    std::vector<std::string> options;
    std::string device;
    int ranks;
  };
  const auto check = [](const Wish& wish) {
    std::vector<std::string> args = {"--dry-run", "--model", toy_model()};
    args.insert(args.end(), wish.options.begin(), wish.options.end());
    Process dry(args);
    INFO(dry.command() << "\n" << dry.err());
    REQUIRE(dry.wait() == 0);
    const nlohmann::json config = nlohmann::json::parse(dry.out());
    CHECK(config.at("device").at("plugin") == wish.device);
    CHECK(config.at("run").at("nproc") == wish.ranks);
  };
  check({{}, "own_memory", 3});
  check({{"--device", "auto", "--nproc", "2"}, "own_memory", 2});
  check({{"--device", "cpu"}, "cpu", 2});
  check({{"--device", "sim"}, "sim", 2});
  check({{"--device", "own_memory"}, "own_memory", 3});
  const Ended on_device = train({"run.quiet=false"});
  CHECK(on_device.code == 0);
  CHECK_THAT(on_device.out + on_device.err,
             Contains("device.plugin=auto chose it: 3 devices of 'own_memory' are present"));
  const Setting none("OWN_MEMORY_DEVICES", "0");
  check({{}, "cpu", 2});
  const Ended on_cpu = train({"run.quiet=false"});
  CHECK_THAT(on_cpu.out + on_cpu.err, Contains("device.plugin=auto chose it: no other device is present"));
}

TEST_CASE("a device that can't be asked whether it is present is not taken, and a warning says so", "[device]") {
  for (const char* fault : {"exit", "abort", "hang", "negative", "error"}) {
    INFO(fault);
    const DeviceFolder plugins("bad_device");
    const Setting folder("DDHOST_PLUGIN_PATH", plugins.path().string()), how("BAD_DEVICE_PRESENT", fault);
    const Ended ended = train({"run.quiet=true"});
    CHECK(ended.code == 0);
    CHECK_THAT(ended.err, Contains("warning: device.plugin=auto can't ask device 'bad_device' ("));
  }
}
