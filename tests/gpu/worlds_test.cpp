// SPDX-License-Identifier: Apache-2.0
//
// Every strategy on one to four ranks, each with a GPU of the stand-in, over shm and over nccl: the bits of the CPU over
// shm.
#include "equivalence/variants.hpp"
#include "fixtures/harness/setting.hpp"
#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;

namespace {

const std::string kStandin = std::string(DDHOST_BUILD_DIR) + "/tests/standin/";
const std::string kModel = std::string(DDHOST_BUILD_DIR) + "/tests/plugins/kernel_toy.so";

Result run_on(const Options& device, const std::string& strategy, const std::string& comm, int world) {
  return run(Cell{{strategy, comm, device}, world, {"data.micro_batch=2", "train.grad_accum_steps=2"}, 3, kModel});
}

}  // namespace

TEST_CASE("one to four ranks have the bits of the CPU under every strategy and over every transport", "[gpu]") {
  const Setting gpus("DDHOST_STANDIN_GPUS", "4");
  const Options cuda = {"--device", "cuda", "device.driver=" + kStandin + "libcuda.so.1"};
  const Options with_nccl = joined(cuda, {"comm.library=" + kStandin + "libnccl.so.2"});
  const int world = GENERATE(1, 2, 3, 4);
  const Result cpu = run_on({}, "ddp", "shm", world);
  REQUIRE(cpu.code == 0);
  for (const std::string strategy : {"ddp", "zero1", "zero2", "zero3", "zero3_offload", "fsdp"})
    for (const std::string comm : {"shm", "nccl"}) {
      const Result gpu = run_on(comm == "nccl" ? with_nccl : cuda, strategy, comm, world);
      INFO(gpu.command << "\n" << cpu.command << "\n" << gpu.err);
      CHECK(gpu.code == 0);
      CHECK(cpu.loss == gpu.loss);
      CHECK(cpu.grad_norm == gpu.grad_norm);
      CHECK(cpu.weights == gpu.weights);
    }
}
