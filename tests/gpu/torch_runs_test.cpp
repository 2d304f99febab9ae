// SPDX-License-Identifier: Apache-2.0
//
// Models on LibTorch on the device cuda, over the stand-in for the driver. LibTorch's operators for GPUs can't run there, so
// each model ends with a sentence before its first step.
#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;

namespace {

const std::string kDriver = "device.driver=" + std::string(DDHOST_BUILD_DIR) + "/tests/standin/libcuda.so.1";

}  // namespace

TEST_CASE("a model on LibTorch is refused without LibTorch's operators for GPUs", "[gpu]") {
  const std::string model = GENERATE("gpt", "vit", "cnn", "kgat", "cad_mllm");
  CAPTURE(model);
  const ToyRun run = toy_run({"--device", "cuda", "train.steps=2", "run.nproc=1", kDriver}, {}, model);
  check_refused(run, {"LibTorch", "--device cpu"});
  CHECK_THAT(run.err, Catch::Contains("can't be loaded") || Catch::Contains("is built for CPUs"));
  CHECK(run.record.steps.empty());
}
