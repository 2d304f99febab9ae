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
  CHECK_THAT(ended.err, Contains("strategy 'good'") && Contains("computes on the CPU and cannot use device") &&
                            Contains("--device cpu"));
}

TEST_CASE("a model on LibTorch is refused on a device that LibTorch does not know", "[device]") {
  if (!std::filesystem::exists(plugin_file("gpt"))) return;  // a build without LibTorch
  const Ended ended = train({"--device", "sim"}, "gpt");
  CHECK(ended.code == 1);
  CHECK_THAT(ended.err, Contains("model 'gpt' computes with LibTorch, which knows no device 'sim'"));
}

TEST_CASE("a device whose memory is too small ends the run with an error", "[device]") {
  const Ended ended = train({"--device", "sim", "--strategy", "ddp", "device.capacity_bytes=20000"});
  CHECK(ended.code == 1);
  CHECK_THAT(ended.err, Contains("no memory for") && Contains("device.capacity_bytes") && Contains("20000"));
  CHECK(train({"--device", "sim", "--strategy", "zero1", "device.capacity_bytes=20000"}).code == 0);
}

// A machine that looks as if it had GPUs; the device sim stands for the one that uses them.
TEST_CASE("without a named device a run takes the device for GPUs where they are visible, and says why", "[device]") {
  const TempFolder nodes;
  for (const char* name : {"nvidia0", "nvidia1", "nvidia2"}) std::ofstream(nodes.file(name)) << "";
  const Setting folder("DDHOST_GPU_NODES", nodes.path().string()), all("CUDA_VISIBLE_DEVICES", "0,1,2");
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
  check({{"device.gpu=sim"}, "sim", 3});
  check({{"device.gpu=sim", "--device", "auto", "--nproc", "2"}, "sim", 2});
  check({{"device.gpu=sim", "--device", "cpu"}, "cpu", 2});
  check({{"--device", "sim"}, "sim", 2});
  check({{"device.gpu=sim", "--device", "sim"}, "sim", 3});
  const Ended missing = train({"device.gpu=none"});
  CHECK(missing.code == 1);
  CHECK_THAT(missing.err, Contains("there is no device 'none'"));
  const TempFolder plugins;
  std::ofstream(plugins.file("damaged.so")) << "damaged";
  const Setting more("DDHOST_PLUGIN_PATH", plugins.path().string());
  CHECK_THAT(train({"device.gpu=damaged"}).err,
             Contains("damaged.so'") && Contains("not an ELF file") && Contains("--device cpu computes without it"));
  const Ended on_gpus = train({"device.gpu=sim", "run.quiet=false"});
  CHECK(on_gpus.code == 0);
  CHECK_THAT(on_gpus.out + on_gpus.err, Contains("device.plugin=auto chose it: 3 GPUs are visible"));
  const Setting none("CUDA_VISIBLE_DEVICES", "");
  check({{"device.gpu=sim"}, "cpu", 2});
  const Ended on_cpu = train({"device.gpu=sim", "run.quiet=false"});
  CHECK_THAT(on_cpu.out + on_cpu.err, Contains("device.plugin=auto chose it: no GPU is visible"));
}
