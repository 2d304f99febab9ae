// SPDX-License-Identifier: Apache-2.0
//
// Models on LibTorch on the device cuda, over the stand-in for the driver. LibTorch's operators for GPUs can't run there, so
// each model ends with a sentence before its first step. What the models say of their operators shows on the CPU.
#include "fixtures/harness/listed.hpp"
#include "fixtures/harness/toy_run.hpp"
#include "gpu/cuda_fixture.hpp"

using namespace ddhost::test;

TEST_CASE("a model on LibTorch is refused without LibTorch's operators for GPUs", "[gpu]") {
  if (needs_stand_ins("on_gpu.sh trains the models on this machine's GPUs")) return;
  if (gpu_count("libcuda.so.1") > 0)
    return skip("this machine has a GPU, which LibTorch would use beside the stand-in");
  const std::string model = GENERATE(from_range(listed_plugins("model", "gpt")));
  CAPTURE(model);
  const ToyRun run =
      toy_run({"--device", "cuda", "train.steps=2", "run.nproc=1", "device.driver=" + driver_file()}, {}, model);
  check_refused(run, {"LibTorch", "--device cpu"});
  // By what this LibTorch has: neither NVIDIA's libraries, nor CUDA, or both and no GPU (./dev setup --gpu).
  CHECK_THAT(run.err, Catch::Contains("can't be loaded") || Catch::Contains("is built for CPUs") ||
                          Catch::Contains("LibTorch finds no GPU"));
  CHECK(run.record.steps.empty());
}

TEST_CASE("a model on LibTorch's operators says that it computes without TF32", "[gpu]") {
  const ToyRun run = ran(toy_run({"--device", "cpu", "train.steps=1", "run.nproc=1", "run.quiet=false"},
                                 {"model.operators=torch", "model.dataset=made_up", "model.size=small"}, "vit"));
  CHECK_THAT(run.out + run.err, Catch::Contains("LibTorch's operators on cpu; no TF32"));
}
