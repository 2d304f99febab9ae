// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints and evaluations of runs on GPUs over nccl, on the stand-ins: a checkpoint resumes on the CPU over shm, one of
// the CPU resumes on GPUs, and all metrics and weights are those of an uninterrupted run on the CPU, bit for bit.
#include "equivalence/variants.hpp"
#include "fixtures/harness/toy_run.hpp"
#include "gpu/place.hpp"

using namespace ddhost::test;

namespace {

constexpr int kSteps = 8, kSaved = 4;
const std::string kModel = build_folder() + "/tests/plugins/kernel_toy.so";
const Options kOnCpu = {"--device", "cpu", "--comm", "shm"};
const Options kOnGpus = {"--device",
                         "cuda",
                         "--comm",
                         "nccl",
                         "device.driver=" + driver_file(),
                         "comm.library=" + nccl_file(),
                         "device.nvml=libnvidia-ml-none.so"};
const char* const kWhy = "on_gpu.sh compares the strategies on this machine's GPUs";

struct Trace {
  std::string rows;  // of the steps after the saved one
  std::string weights;
  std::string checkpoint;  // its tensors, if there is one
};

std::string checkpoint_of(const TempFolder& folder) {
  return folder.file("run/checkpoints/step-" + std::to_string(kSaved));
}

Trace trained(const Options& place, const std::string& strategy, const TempFolder& folder, const Options& more) {
  Process process(joined(
      joined({"--model", kModel, "--strategy", strategy, "--nproc", "2", "run.quiet=true", "run.sample_tokens=0",
              "data.micro_batch=3", "train.grad_accum_steps=2", "train.steps=" + std::to_string(kSteps),
              "train.eval_every=2", "run.dir=" + folder.file("run"), "--save-final", folder.file("final.safetensors")},
             place),
      more));
  const int code = process.wait();
  INFO(process.command() << "\n" << process.err());
  REQUIRE(code == 0);
  Trace trace;
  std::istringstream in(rows_of(folder.file("run")));
  for (std::string row; std::getline(in, row);)
    if (nlohmann::json::parse(row).at("step") > kSaved) trace.rows += row + "\n";
  CHECK_THAT(trace.rows, Catch::Contains("val_loss"));
  trace.weights = read_text(folder.file("final.safetensors"));
  REQUIRE_FALSE(trace.weights.empty());
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors"})
    trace.checkpoint += read_text(checkpoint_of(folder) + file);
  return trace;
}

// What `ddhost eval` prints of a file of weights.
std::string evaluated(const Options& place, const std::string& weights) {
  const TempFolder folder;
  Process process(joined({"eval", "--weights", weights, "--model", kModel, "--nproc", "2", "run.quiet=true",
                          "run.dir=" + folder.file("run")},
                         place));
  const int code = process.wait();
  INFO(process.command() << "\n" << process.err());
  REQUIRE(code == 0);
  CHECK_THAT(process.out(), Catch::Contains("eval: 100 samples") && Catch::Contains("loss"));
  return process.out();
}

}  // namespace

TEST_CASE("a checkpoint of GPUs resumes on the CPU, and one of the CPU on GPUs, with the bits of a run without a break",
          "[gpu]") {
  if (needs_stand_ins(kWhy)) return;
  const StandinGpus gpus(2);
  const std::string strategy = GENERATE("ddp", "zero2", "zero3");
  INFO(strategy);
  const Options saves = {"checkpoint.every=" + std::to_string(kSaved), "checkpoint.keep_last=0"};
  const TempFolder of_cpu, of_gpus;
  const Trace whole = trained(kOnCpu, strategy, of_cpu, saves), first = trained(kOnGpus, strategy, of_gpus, saves);
  CHECK(first.rows == whole.rows);
  CHECK((first.weights == whole.weights));
  CHECK((first.checkpoint == whole.checkpoint));
  REQUIRE_FALSE(whole.checkpoint.empty());
  for (const bool from_gpus : {true, false}) {
    INFO((from_gpus ? "from GPUs to the CPU" : "from the CPU to GPUs"));
    const TempFolder folder;
    const Trace second = trained(from_gpus ? kOnCpu : kOnGpus, strategy, folder,
                                 {"--resume", checkpoint_of(from_gpus ? of_gpus : of_cpu)});
    CHECK(second.rows == whole.rows);
    CHECK((second.weights == whole.weights));
  }
}

TEST_CASE("the weights of a run are evaluated on GPUs with the bits of the CPU", "[gpu]") {
  if (needs_stand_ins(kWhy)) return;
  const StandinGpus gpus(2);
  const TempFolder folder;
  (void)trained(kOnGpus, "zero3", folder, {});
  const std::string weights = folder.file("final.safetensors");
  CHECK(evaluated(kOnGpus, weights) == evaluated(kOnCpu, weights));
}
