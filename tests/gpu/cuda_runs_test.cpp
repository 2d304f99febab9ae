// SPDX-License-Identifier: Apache-2.0
//
// Runs of the program on the device cuda, over the stand-in for the driver: the bits of the CPU under every strategy,
// and refusals.
#include "equivalence/variants.hpp"
#include "fixtures/harness/setting.hpp"
#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;
using Catch::Contains;

namespace {

const std::string kModel = std::string(DDHOST_BUILD_DIR) + "/tests/plugins/kernel_toy.so";
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

ToyRun cuda_run(const std::vector<std::string>& more, const std::string& model = kModel) {
  return toy_run({"--device", "cuda", "train.steps=2", "run.nproc=1"}, more, model);
}

}  // namespace

TEST_CASE("a run on the GPU has the bits of the CPU under every strategy", "[gpu]") {
  const auto options = GENERATE(Options{"data.micro_batch=4"}, Options{"data.micro_batch=4", "precision.compute=bf16"},
                                Options{"data.micro_batch=3", "train.grad_accum_steps=2", "train.clip_norm=0.5"});
  const Result cpu = run_on("cpu", "ddp", "loop", 2, options);
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "zero3_offload", "fsdp"})
    check_equal(cpu, run_on("cuda", strategy, "shm", 2, options));
}

TEST_CASE("the number of ranks and GPUs does not change the bits", "[gpu]") {
  const Setting gpus("DDHOST_STANDIN_GPUS", "2");
  for (const int world : {1, 3}) {
    const Options options = {"data.micro_batch=2"};
    check_equal(run_on("cpu", "zero3", "shm", world, options), run_on("cuda", "zero3", "shm", world, options));
    check_equal(run_on("cpu", "ddp", "loop", world, options), run_on("cuda", "fsdp", "loop", world, options));
  }
}

TEST_CASE("another order of queued work gives the same bits", "[gpu]") {
  const Options options = {"data.micro_batch=4", "strategy.prefetch_units=3"};
  const Result cpu = run_on("cpu", "zero3", "shm", 2, options);
  for (const char* seed : {"1", "2", "3"}) {
    const Setting order("DDHOST_STANDIN_ORDER", seed);
    check_equal(cpu, run_on("cuda", "zero3", "shm", 2, options));
  }
}

TEST_CASE("every optimizer with kernels has the bits of the CPU", "[gpu]") {
  for (const Options& optimizer :
       {Options{"--optimizer", "adam", "optimizer.weight_decay=0.1"}, Options{"--optimizer", "sgd"},
        Options{"--optimizer", "sgd", "optimizer.momentum=0.9"},
        Options{"--optimizer", "sgd", "optimizer.momentum=0.9", "optimizer.nesterov=true"},
        Options{"--optimizer", "lion", "train.clip_value=0.001"},
        Options{"--optimizer", "adagrad", "precision.compute=fp16"}}) {
    Options options = {"data.micro_batch=4"};
    options.insert(options.end(), optimizer.begin(), optimizer.end());
    check_equal(run_on("cpu", "zero1", "loop", 2, options), run_on("cuda", "zero1", "loop", 2, options));
  }
}

TEST_CASE("a run without a driver, or without a GPU, is refused with one sentence", "[gpu]") {
  check_refused(cuda_run({"device.driver=libcuda-none.so.1"}), {"no CUDA driver was found", "--device cpu"});
  const Setting none("CUDA_VISIBLE_DEVICES", "");
  check_refused(cuda_run({kDriver}), {"finds no GPU", "CUDA_VISIBLE_DEVICES", "--device cpu"});
}

TEST_CASE("CUDA_VISIBLE_DEVICES chooses the GPUs", "[gpu]") {
  const Setting gpus("DDHOST_STANDIN_GPUS", "4"), visible("CUDA_VISIBLE_DEVICES", "2");
  const Setting small("DDHOST_STANDIN_BYTES", "4096");
  check_refused(cuda_run({kDriver}), {"stand-in GPU 2"});  // it has too little memory, so the message names it
}

TEST_CASE("a GPU with too little memory ends the run with its size, the memory by purpose, and what to do", "[gpu]") {
  const Setting small("DDHOST_STANDIN_BYTES", "8192");
  check_refused(cuda_run({kDriver, "--strategy", "ddp"}),
                {"no memory for", "GPU 0", "8192 bytes", "this rank holds param", "a strategy that shards more"});
}

TEST_CASE("an optimizer or a model that computes on the host is refused", "[gpu]") {
  check_refused(cuda_run({kDriver, "--optimizer", "lamb"}), {"optimizer 'lamb' has no kernels", "--device cpu"});
  check_refused(cuda_run({kDriver}, toy_model()), {"computes on the host", "--device cpu"});
}
