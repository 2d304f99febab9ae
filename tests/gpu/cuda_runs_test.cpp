// SPDX-License-Identifier: Apache-2.0
//
// Runs of the program on the device cuda, over the stand-in for the driver: the bits of the CPU under every strategy,
// and refusals.
#include <chrono>
#include <regex>

#include "equivalence/variants.hpp"
#include "fixtures/harness/built.hpp"
#include "fixtures/harness/listed.hpp"
#include "fixtures/harness/setting.hpp"
#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;
using Catch::Contains;

namespace {

const std::string kModel = test_plugin("kernel_toy");
const std::string kDriver = "device.driver=" + std::string(DDHOST_BUILD_DIR) + "/tests/standin/libcuda.so.1";

Result run_on(const char* device, const std::string& strategy, const char* comm, int world, Options options) {
  if (std::string(device) == "cuda") options.push_back(kDriver);
  const Result result = run(Cell{{strategy, comm, {"--device", device}}, world, options, 5, kModel});
  REQUIRE(result.code == 0);
  return result;
}
void check_equal(const Result& cpu, const Result& gpu) {
  INFO(gpu.command << "\n" << cpu.command);
  CHECK(cpu.loss == gpu.loss);
  CHECK(cpu.grad_norm == gpu.grad_norm);
  CHECK(cpu.weights == gpu.weights);
}

// Calls of the model that were replayed as graphs.
struct Replays {
  uint64_t replayed = 0, calls = 0;
};

ToyRun cuda_run(const std::vector<std::string>& more, const std::string& model = kModel) {
  return toy_run({"--device", "cuda", "train.steps=2", "run.nproc=1"}, more, model);
}

Replays replays_of(std::vector<std::string> options) {
  options.insert(options.end(), {kDriver, "run.quiet=false", "train.steps=8"});
  const ToyRun run = ran(cuda_run(options));
  static const std::regex line("([0-9]+) of ([0-9]+) calls were replayed as graphs");
  const std::string text = run.out + run.err;
  std::smatch found;
  if (!std::regex_search(text, found, line)) return {};
  return {std::stoull(found[1]), std::stoull(found[2])};
}

}  // namespace

TEST_CASE("a run on the GPU has the bits of the CPU under every strategy", "[gpu]") {
  const auto options = GENERATE(Options{"data.micro_batch=4"}, Options{"data.micro_batch=4", "precision.compute=bf16"},
                                Options{"data.micro_batch=3", "train.grad_accum_steps=2", "train.clip_norm=0.5"});
  const Result cpu = run_on("cpu", "ddp", "loop", 2, options);
  for (const std::string& strategy : taken_strategies()) check_equal(cpu, run_on("cuda", strategy, "shm", 2, options));
}

TEST_CASE("the number of ranks and GPUs does not change the bits", "[gpu]") {
  const Setting gpus("DDHOST_STANDIN_GPUS", "2");
  for (const int world : {1, 3}) {
    const Options options = {"data.micro_batch=2"};
    check_equal(run_on("cpu", "zero3", "shm", world, options), run_on("cuda", "zero3", "shm", world, options));
    check_equal(run_on("cpu", "ddp", "loop", world, options), run_on("cuda", "fsdp", "loop", world, options));
  }
}

TEST_CASE("without a named device a run takes the visible GPUs, one for each rank, with the bits of the CPU", "[gpu]") {
  const TempFolder nodes;
  for (const char* name : {"nvidia0", "nvidia1"}) std::ofstream(nodes.file(name)) << "";
  const auto [list, first] =
      GENERATE(std::pair("0,1", "0"), std::pair("GPU-02020202-0202-0202-0202-020202020202,GPU-0101", "1"));
  const Setting gpus("DDHOST_STANDIN_GPUS", "2"), visible("CUDA_VISIBLE_DEVICES", list);
  const Setting folder("DDHOST_GPU_NODES", nodes.path().string());
  const Options options = {"model.plugin=" + kModel, "train.steps=3", "run.quiet=false", "run.sample_tokens=0"};
  const auto trained = [&](const char* name, const Options& more) {
    Process run(joined(joined(options, {"run.dir=" + nodes.file(name)}), more));
    INFO(run.command() << "\n" << run.err());
    REQUIRE(run.wait() == 0);
    CHECK(read_run(nodes.file(name)).summary.at("ranks").size() == 2);
    return run.out() + run.err();
  };
  CHECK_THAT(trained("gpu", {kDriver}),
             Contains(std::string("device stand-in GPU ") + first) && Contains("2 devices of 'cuda' are present"));
  trained("cpu", {"--device", "cpu", "--nproc", "2"});
  CHECK(read_run(nodes.file("gpu")).column("loss") == read_run(nodes.file("cpu")).column("loss"));
}

TEST_CASE("another order of queued work gives the same bits", "[gpu]") {
  const Options options = {"data.micro_batch=4", "strategy.prefetch_units=3"};
  const Result cpu = run_on("cpu", "zero3", "shm", 2, options);
  for (const char* seed : {"1", "2", "3"}) {
    const Setting order("DDHOST_STANDIN_ORDER", seed);
    check_equal(cpu, run_on("cuda", "zero3", "shm", 2, options));
  }
}

TEST_CASE("every optimizer has the bits of the CPU", "[gpu]") {
  std::vector<Options> optimizers = {{"--optimizer", "adam", "optimizer.weight_decay=0.1"},
                                     {"--optimizer", "sgd"},
                                     {"--optimizer", "sgd", "optimizer.momentum=0.9"},
                                     {"--optimizer", "sgd", "optimizer.momentum=0.9", "optimizer.nesterov=true"},
                                     {"--optimizer", "adagrad", "precision.compute=fp16"}};
  for (const std::string& name : listed_plugins("optimizer", "adamw"))
    optimizers.push_back({"--optimizer", name, "train.clip_value=0.001"});
  for (const Options& optimizer : optimizers) {
    const Options options = joined({"data.micro_batch=4"}, optimizer);
    check_equal(run_on("cpu", "zero1", "loop", 2, options), run_on("cuda", "zero1", "loop", 2, options));
  }
}

TEST_CASE("an optimizer of norms, and one of whole matrices, have the bits of the CPU under every strategy", "[gpu]") {
  const std::string optimizer = GENERATE("lamb", "muon");
  const Options options = {"--optimizer", optimizer, "data.micro_batch=4", "train.clip_norm=0.5",
                           "precision.compute=bf16"};
  const Result cpu = run_on("cpu", "ddp", "loop", 2, options);
  for (const std::string& strategy : taken_strategies()) check_equal(cpu, run_on("cuda", strategy, "shm", 2, options));
}

TEST_CASE("zero3_offload keeps all in pinned memory with the bits of the CPU", "[gpu]") {
  const Options options = {"data.micro_batch=4"};
  const Options pinned = {"data.micro_batch=4", "strategy.offload_optimizer.device=cpu",
                          "strategy.offload_param.device=cpu"};
  const Setting order("DDHOST_STANDIN_ORDER", "7");
  check_equal(run_on("cpu", "ddp", "loop", 2, options), run_on("cuda", "zero3_offload", "shm", 2, pinned));
}

TEST_CASE("zero3_offload keeps states and parameters in files with the bits of the CPU and the planned memory",
          "[gpu]") {
  const Setting order("DDHOST_STANDIN_ORDER", "7");
  const auto more = GENERATE(Options{}, Options{"precision.compute=bf16", "train.grad_accum_steps=2"},
                             Options{"--optimizer", "lamb"});
  const Options options = joined({"data.micro_batch=2"}, more);
  const Result cpu = run_on("cpu", "ddp", "loop", 2, options);
  const TempFolder folder;
  for (const std::string state : {"none", "cpu", "nvme"})
    for (const std::string values : {"none", "cpu", "nvme", "both"}) {
      if (state != "nvme" && (values == "none" || values == "cpu")) continue;
      const Result gpu =
          run_on("cuda", "zero3_offload", "shm", 2,
                 joined(options, {"strategy.offload_optimizer.device=" + state,
                                  "strategy.offload_param.device=" + (values == "both" ? "nvme" : values),
                                  std::string("strategy.offload_param.max_in_cpu=") + (values == "both" ? "6000" : "0"),
                                  "strategy.buffer_bytes=4096", "strategy.nvme_path=" + folder.path().string()}));
      INFO("state " << state << ", parameters " << values);
      check_equal(cpu, gpu);
      for (const auto& rank : gpu.record.summary.at("ranks"))
        for (const char* tag : {"param", "grad", "optim"})
          CHECK(rank.at("memory_bytes").at(tag).at("peak") == rank.at("plan_bytes").at(tag));
    }
}

TEST_CASE("kernels that are replayed as graphs have the same bits, also where addresses change between steps",
          "[gpu]") {
  const Options options = {"data.micro_batch=2", "train.grad_accum_steps=2"};
  const Result cpu = run_on("cpu", "ddp", "loop", 2, options);
  for (const char* strategy : {"ddp", "zero2", "zero3", "zero3_offload"}) {
    Options with = options;
    with.emplace_back("device.graphs=true");
    check_equal(cpu, run_on("cuda", strategy, "shm", 2, with));
  }
}

TEST_CASE("device.graphs=true replays most calls of a model that can under ddp, and some under other strategies",
          "[gpu]") {
  for (const std::string strategy : {"ddp", "zero2", "zero3", "zero3_offload"}) {
    const Replays found = replays_of({"--strategy", strategy, "device.graphs=true"});
    INFO(strategy << ": " << found.replayed << " of " << found.calls);
    CHECK(found.replayed > (strategy == "ddp" ? found.calls / 2 : 0));
  }
  CHECK(replays_of({"--strategy", "ddp", "device.graphs=false"}).replayed == 0);
}

TEST_CASE("device.graphs=true says once where nothing was captured, after a run that ended well", "[gpu]") {
  const Setting gpus("DDHOST_STANDIN_GPUS", "2");  // two of the three ranks share the first
  const auto times = [](int code, const std::vector<std::string>& options) {
    const TempFolder folder;
    const ToyRun run = cuda_run(joined({kDriver, "run.nproc=3", "run.dir=" + folder.file("run")}, options));
    INFO(run.command << "\n" << run.err);
    CHECK(run.code == code);
    const std::string log = read_text(folder.file("run/log.txt")), words = "device.graphs=true changed nothing";
    int found = 0;
    for (size_t at = log.find(words); at != std::string::npos; at = log.find(words, at + 1)) ++found;
    return found;
  };
  CHECK(times(0, {"device.graphs=true", "train.steps=1"}) == 1);  // a group is captured when it comes again
  CHECK(times(0, {"device.graphs=true", "train.steps=3"}) == 0);
  CHECK(times(0, {"train.steps=1"}) == 0);
  const Setting small("DDHOST_STANDIN_BYTES", "8192");
  CHECK(times(1, {"device.graphs=true", "train.steps=1"}) == 0);
}

TEST_CASE("a run without a driver, or without a GPU, is refused with one sentence", "[gpu]") {
  check_refused(cuda_run({"device.driver=libcuda-none.so.1"}), {"no CUDA driver was found", "--device cpu"});
  const Setting none("CUDA_VISIBLE_DEVICES", "");
  check_refused(cuda_run({kDriver}), {"finds no GPU", "CUDA_VISIBLE_DEVICES", "--device cpu"});
}

TEST_CASE("a driver that can't be started ends a run with what to do, also where auto chose the GPU", "[gpu]") {
  const TempFolder nodes;
  std::ofstream(nodes.file("nvidia0")) << "";
  const Setting folder("DDHOST_GPU_NODES", nodes.path().string()), broken("DDHOST_STANDIN_INIT", "999");
  for (const char* device : {"cuda", "auto"})
    check_refused(toy_run({"--device", device, "train.steps=2", "run.nproc=1", kDriver}, {}, kModel),
                  {"the CUDA driver can't be started: unknown error", "`nvidia-smi`", "--device cpu"});
}

TEST_CASE("an old driver is refused with the version that is needed", "[gpu]") {
  const std::string version = GENERATE("12.2", "12.4");  // 12.2 lacks functions
  const Setting old("DDHOST_STANDIN_VERSION", version == "12.2" ? "12020" : "12040");
  const ToyRun run = cuda_run({kDriver});
  check_refused(run, {"supports CUDA " + version + ", but the kernels of this build need CUDA", "--device cpu"});
  // A toolkit that came later than the plugin's table has no number.
  CHECK(std::regex_search(run.err, std::regex("(, which is in driver [0-9]{3} and newer)?; update NVIDIA's driver")));
}

TEST_CASE(
    "a refusal for lack of a driver, of a new one, of a GPU, or of NCCL takes less than 100 ms more than the program's "
    "start",
    "[gpu]") {
  // The best of some runs, until one is below `limit`: other work on the machine slows single ones.
  const auto ms_of = [](const std::vector<std::string>& options, const char* sentence, double limit, int most_runs) {
    double best = 1e9;
    for (int i = 0; i < most_runs && best >= limit; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const ToyRun run = cuda_run(options);
      best =
          std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
      check_refused(run, {sentence});
    }
    return best;
  };
  const double limit = ms_of({"train.no_such_option=1"}, "train.no_such_option", 0, 5) + 100;
  const auto check_fast = [&](const std::vector<std::string>& options, const char* sentence) {
    CHECK(ms_of(options, sentence, limit, 40) < limit);
  };
  check_fast({"device.driver=libcuda-none.so.1"}, "no CUDA driver was found");
  check_fast({"device.driver=libm.so.6"}, "is no CUDA driver");
#ifdef TOOLKIT_STUB
  check_fast({"device.driver=" TOOLKIT_STUB}, "the stub of a toolkit");
#endif
  check_fast({kDriver, "--comm", "nccl", "comm.library=libnccl-none.so.2"}, "NCCL was not found");
  {
    const Setting old("DDHOST_STANDIN_VERSION", "12040");
    check_fast({kDriver}, "supports CUDA 12.4");
  }
  const Setting none("CUDA_VISIBLE_DEVICES", "");
  check_fast({kDriver}, "finds no GPU");
}

TEST_CASE("the metrics have the GPU's load, memory and temperature where NVIDIA's library is found", "[gpu]") {
  const std::string nvml = "device.nvml=" + std::string(DDHOST_BUILD_DIR) + "/tests/standin/libnvidia-ml.so.1";
  const ToyRun with = ran(cuda_run({kDriver, nvml, "train.steps=3"}));
  REQUIRE(!with.record.steps.empty());
  const nlohmann::json& row = with.record.steps.back();
  CHECK(row.at("device_busy_percent").get<double>() > 40);
  CHECK(row.at("device_used_bytes").get<double>() == 600);
  CHECK(row.at("device_celsius").get<double>() > 60);
  const ToyRun without = ran(cuda_run({kDriver, "device.nvml=libnvidia-ml-none.so"}));
  CHECK(!without.record.steps.back().contains("device_celsius"));
}

TEST_CASE("CUDA_VISIBLE_DEVICES chooses the GPUs, by number or by UUID", "[gpu]") {
  const std::string list = GENERATE("2", "GPU-03030303-0303-0303-0303-030303030303", "GPU-03", "MIG-8383");
  const Setting gpus("DDHOST_STANDIN_GPUS", "4"), visible("CUDA_VISIBLE_DEVICES", list);
  const Setting small("DDHOST_STANDIN_BYTES", "4096");
  for (const char* overcommit : {"run.allow_overcommit=false", "run.allow_overcommit=true"})
    check_refused(cuda_run({kDriver, overcommit}), {"stand-in GPU 2"});  // it has too little memory and is named
}

TEST_CASE("UUIDs that name no GPU, or several, show none", "[gpu]") {
  const std::string list = GENERATE("GPU-99", "GPU-", "GPU-0", "MIG-01", "GPU-01,0");
  const Setting gpus("DDHOST_STANDIN_GPUS", "4"), visible("CUDA_VISIBLE_DEVICES", list);
  check_refused(cuda_run({kDriver}), {"finds no GPU (CUDA_VISIBLE_DEVICES is '" + list + "')"});
}

TEST_CASE("a run on an instance of a GPU (MIG) ends well, without the metrics of NVIDIA's library", "[gpu]") {
  const Setting instance("CUDA_VISIBLE_DEVICES", "MIG-81818181-8181-8181-8181-818181818181");
  const ToyRun run =
      ran(cuda_run({kDriver, "device.nvml=" + std::string(DDHOST_BUILD_DIR) + "/tests/standin/libnvidia-ml.so.1"}));
  REQUIRE(!run.record.steps.empty());
  CHECK(!run.record.steps.back().contains("device_celsius"));
}

TEST_CASE("a GPU with too little memory ends the run with its size, the memory by purpose, and what to do", "[gpu]") {
  const Setting small("DDHOST_STANDIN_BYTES", "8192");
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "fsdp", "zero3_offload"})
    check_refused(
        cuda_run({kDriver, "--strategy", strategy, "run.allow_overcommit=true"}),
        {"no memory for", "GPU 0", "8192 bytes", "this rank holds ", "ddhost plan --all-strategies", "--fit"});
}

TEST_CASE("an optimizer or a model that computes on the host is refused", "[gpu]") {
  const std::string optimizer = test_plugin("bad_optimizer");
  check_refused(cuda_run({kDriver, "--optimizer", optimizer}), {"has no kernels for devices", "another --device"});
  check_refused(cuda_run({kDriver}, toy_model()), {"computes on the host", "--device cpu"});
}
