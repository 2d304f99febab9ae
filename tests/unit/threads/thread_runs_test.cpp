// SPDX-License-Identifier: Apache-2.0
//
// Whole runs under the thread sanitizer. The ranks are threads (comm.plugin=loop), beside those that read batches, write
// checkpoints, offload, and work off the streams of the device sim. The sanitizer ends a run with a report and exit code 66.
#include <catch2/catch.hpp>

#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/listed.hpp"

using namespace ddhost::test;

namespace {

void check_run(const std::string& strategy, const std::vector<std::string>& more) {
  const TempFolder folder;
  std::vector<std::string> words = {"--model",
                                    toy_model(),
                                    "--strategy",
                                    strategy,
                                    "comm.plugin=loop",
                                    "run.nproc=3",
                                    "run.quiet=true",
                                    "model.buffers=true",
                                    "data.workers=4",
                                    "data.micro_batch=2",
                                    "train.steps=6",
                                    "train.eval_every=3",
                                    "train.eval_batches=3",
                                    "train.grad_accum_steps=2",
                                    "checkpoint.every=2",
                                    "checkpoint.keep_last=1",
                                    "run.dir=" + folder.file("run"),
                                    "train.save_final=" + folder.file("final.safetensors")};
  words.insert(words.end(), more.begin(), more.end());
  Process process(words);
  const int code = process.wait(std::chrono::seconds(120));
  INFO(process.command() << "\n" << process.err());
  CHECK(code == 0);
  CHECK(process.err().find("ThreadSanitizer") == std::string::npos);
  CHECK(read_run(folder.path() / "run").steps.size() == 6);
}

}  // namespace

TEST_CASE("runs whose ranks are threads have no data race under any strategy") {
  check_run(GENERATE(from_range(listed_strategies())), {});
}

TEST_CASE("runs have no data race with copied windows, bf16, and saves that the training waits for") {
  check_run("zero3", {"comm.windows=copy"});
  check_run("zero2", {"precision.compute=bf16"});
  std::string monitors;
  for (const std::string& monitor : listed_plugins("monitor", "jsonl"))
    monitors += (monitors.empty() ? "" : ",") + monitor;
  check_run("zero1", {"checkpoint.async=false", "--monitor", monitors});
}

TEST_CASE("runs whose gradients are summed during the backward have no data race") {
  check_run(GENERATE(from_range(listed_strategies())), {"comm.windows=copy", "comm.overlap=true"});
}

TEST_CASE("runs on the device sim have no data race") {
  const std::string strategy = GENERATE("ddp", "zero2", "zero3", "fsdp");
  check_run(strategy, {"--device", "sim", "device.delay_us=5", "device.jitter_us=50"});
}
