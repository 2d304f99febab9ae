// SPDX-License-Identifier: Apache-2.0
//
// Every strategy on one to four ranks, each with a GPU of the stand-in, over shm and over nccl: the bits of the CPU over
// shm.
#include "equivalence/variants.hpp"
#include "fixtures/harness/toy_run.hpp"
#include "gpu/place.hpp"

using namespace ddhost::test;

namespace {

const std::string kModel = build_folder() + "/tests/plugins/kernel_toy.so";

Result run_on(const Options& device, const std::string& strategy, const std::string& comm, int world) {
  return run(Cell{{strategy, comm, device}, world, {"data.micro_batch=2", "train.grad_accum_steps=2"}, 3, kModel});
}

}  // namespace

TEST_CASE("one to four ranks have the bits of the CPU under every strategy and over every transport", "[gpu]") {
  if (needs_stand_ins("on_gpu.sh compares the strategies on this machine's GPUs")) return;
  const StandinGpus gpus(4);
  const Options cuda = {"--device", "cuda", "device.driver=" + driver_file()};
  const Options with_nccl = joined(cuda, {"comm.library=" + nccl_file()});
  const int world = GENERATE(1, 2, 3, 4);
  const Result cpu = run_on({}, "ddp", "shm", world);
  REQUIRE(cpu.code == 0);
  for (const std::string& strategy : taken_strategies())
    for (const std::string comm : {"shm", "nccl"}) {
      const Result gpu = run_on(comm == "nccl" ? with_nccl : cuda, strategy, comm, world);
      INFO(gpu.command << "\n" << cpu.command << "\n" << gpu.err);
      CHECK(gpu.code == 0);
      CHECK(cpu.loss == gpu.loss);
      CHECK(cpu.grad_norm == gpu.grad_norm);
      CHECK(cpu.weights == gpu.weights);
    }
}
