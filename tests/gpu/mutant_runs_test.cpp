// SPDX-License-Identifier: Apache-2.0
//
// Runs of the program that lack one call of the driver or of NCCL: the stand-ins ignore it. Each is found: the run ends
// with an error or has other weights than the CPU. Only a run that does not abort a lost rank's communicators does not end.
// The mistakes of mistakes_test.cpp are made on the device by itself. The list of all is in docs/gpu.md.
#include <chrono>

#include "equivalence/variants.hpp"
#include "fixtures/harness/setting.hpp"
#include "fixtures/harness/toy_run.hpp"
#include "gpu/place.hpp"

using namespace ddhost::test;
using namespace std::chrono_literals;

namespace {

const std::string kModel = build_folder() + "/tests/plugins/kernel_toy.so";
const std::string kDriver = "device.driver=" + driver_file(), kLibrary = "comm.library=" + nccl_file();
const char* const kWhy = "only the stand-ins find mistakes in every run";

const Options kSymmetric = {"comm.symmetric_windows=true"};

struct Ended {
  int code;  // -1: it did not end in time
  std::string weights, err;
  std::chrono::milliseconds time;
  // It ended by itself, with an error or with other weights. A run that hangs may only be slow.
  [[nodiscard]] bool differs_from(const Ended& right) const {
    return code != -1 && (code != 0 || weights != right.weights);
  }
};

// A mutant has ten times the time of a correct run, and at least 5 s.
std::chrono::milliseconds limit_of(const Ended& right) { return std::max(10 * right.time, 5000ms); }

Ended run_for(std::chrono::milliseconds limit, const std::vector<std::string>& options) {
  const TempFolder folder;
  const auto begin = std::chrono::steady_clock::now();
  Process process(
      joined({"model.plugin=" + kModel, "run.nproc=2", "run.quiet=true", "run.sample_tokens=0", "train.steps=4",
              "data.micro_batch=4", "run.dir=" + folder.file("run"), "--save-final", folder.file("final.safetensors")},
             options));
  const int code = process.wait(limit);
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
  return {code, read_text(folder.file("final.safetensors")), process.err(), time};
}
// A strategy with streams of its own.
Ended run_over_nccl(std::chrono::milliseconds limit = 60s, const Options& more = {}) {
  return run_for(
      limit, joined({"--strategy", "zero3_offload", "--device", "cuda", "--comm", "nccl", kDriver, kLibrary}, more));
}

// How the lack of a call shows in a run over NCCL.
void check_found(const char* call, int runs, const Options& more = {}) {
  if (needs_stand_ins(kWhy)) return;
  const Setting gpus("DDHOST_STANDIN_GPUS", "2");
  const Ended cpu = run_for(60s, {"--strategy", "ddp"}), right = run_over_nccl(60s, more);
  INFO(right.err);
  REQUIRE(cpu.code == 0);
  REQUIRE(right.code == 0);
  REQUIRE(right.weights == cpu.weights);
  const Setting ignored("DDHOST_STANDIN_IGNORES", call);
  for (int i = 0; i < runs; ++i) {
    const Ended mutant = run_over_nccl(limit_of(right), more);
    INFO(call << ", run " << i << ": exit " << mutant.code << ": " << mutant.err);
    CHECK(mutant.differs_from(right));
  }
}

// Kernels that do not wait for the upload of a batch compute with other tokens.
void check_upload_found(int runs) {
  if (needs_stand_ins(kWhy)) return;
  const std::vector<std::string> options = {
      "--strategy", "ddp", "--device", "cuda", "train.grad_accum_steps=2", "data.micro_batch=2", kDriver};
  const Ended right = run_for(60s, options);
  REQUIRE(right.code == 0);
  const Setting ignored("DDHOST_STANDIN_IGNORES", "cuStreamWaitEvent");
  for (int i = 0; i < runs; ++i) {
    const Ended mutant = run_for(limit_of(right), options);
    INFO("run " << i << ": exit " << mutant.code << ": " << mutant.err);
    CHECK(mutant.differs_from(right));
  }
}

// A lost rank: its GPU waits for ever, so only an abort ends the run.
void check_abort_is_missed(int runs) {
  if (needs_stand_ins(kWhy)) return;
  const Setting gpus("DDHOST_STANDIN_GPUS", "2"), lost("DDHOST_STANDIN_NCCL_LOST", "1:7");
  const Ended right = run_over_nccl();
  CHECK(right.code > 0);
  CHECK(right.time < 10s);
  const Setting ignored("DDHOST_STANDIN_IGNORES", "ncclCommAbort");
  for (int i = 0; i < runs; ++i) CHECK(run_over_nccl(limit_of(right)).code == -1);
}

}  // namespace

TEST_CASE("a run that lacks a wait between streams, the end of a group, the release of a window, or a context is found",
          "[gpu]") {
  check_found(GENERATE("cuStreamWaitEvent", "ncclGroupEnd", "ncclCommDeregister", "cuCtxSetCurrent"), 1);
}

TEST_CASE("a run that lacks the registration or the release of a symmetric window is found", "[gpu]") {
  check_found(GENERATE("ncclCommWindowRegister", "ncclCommWindowDeregister"), 1, kSymmetric);
}

TEST_CASE("uploads of batches are on a stream of their own: without waits between streams a run has other weights",
          "[gpu]") {
  check_upload_found(1);
}

TEST_CASE("each missing call is found in ten of ten runs", "[.all]") {
  check_found(GENERATE("cuStreamWaitEvent", "ncclGroupEnd", "ncclCommDeregister", "cuCtxSetCurrent"), 10);
}

TEST_CASE("the missing registration or release of a symmetric window is found in ten of ten runs", "[.all]") {
  check_found(GENERATE("ncclCommWindowRegister", "ncclCommWindowDeregister"), 10, kSymmetric);
}

TEST_CASE("a batch without waits between streams is found in ten of ten runs", "[.all]") { check_upload_found(10); }

TEST_CASE("a run that does not abort its communicators when a rank is lost never ends, ten times of ten", "[.all]") {
  check_abort_is_missed(10);
}

TEST_CASE("a rank that is killed ends the run within ten seconds, named", "[gpu]") {
  if (needs_stand_ins("a killed rank is tried on the stand-ins")) return;
  struct Case {
    std::string comm;
    size_t world, killed;
  };
  const auto [comm, world, killed] =
      GENERATE(Case{"shm", 2, 1}, Case{"nccl", 2, 1}, Case{"nccl", 3, 0}, Case{"nccl", 3, 2}, Case{"nccl", 4, 2});
  INFO(comm << ", " << world << " ranks, rank " << killed << " is killed");
  const Setting gpus("DDHOST_STANDIN_GPUS", std::to_string(world));
  const TempFolder folder;
  Process process(
      joined({"model.plugin=" + kModel, "run.nproc=" + std::to_string(world), "run.quiet=true", "run.sample_tokens=0",
              "train.steps=100000", "run.dir=" + folder.file("run"), "--device", "cuda", "--comm", comm, kDriver},
             comm == "nccl" ? Options{kLibrary} : Options{}));
  const std::string children =
      "/proc/" + std::to_string(process.pid()) + "/task/" + std::to_string(process.pid()) + "/children";
  std::vector<pid_t> ranks;
  for (const auto end = std::chrono::steady_clock::now() + 30s; ranks.empty() && std::chrono::steady_clock::now() < end;
       std::this_thread::sleep_for(5ms)) {
    if (read_text(folder.file("run/metrics.jsonl")).size() < 1000) continue;
    std::istringstream in(read_text(children));
    for (pid_t rank = 0; in >> rank;) ranks.push_back(rank);
  }
  REQUIRE(ranks.size() == world);
  REQUIRE(kill(ranks[killed], SIGKILL) == 0);
  const auto begin = std::chrono::steady_clock::now();
  const int code = process.wait(30s);
  INFO(process.err());
  CHECK(std::chrono::steady_clock::now() - begin < 10s);  // from the kill to the end of the run
  CHECK(code == 1);
  CHECK_THAT(process.err(), Catch::Contains("rank " + std::to_string(killed) + " ") && Catch::Contains("signal 9"));
  for (const pid_t rank : ranks) {
    for (int i = 0; i < 400 && kill(rank, 0) == 0; ++i) std::this_thread::sleep_for(5ms);
    CHECK(kill(rank, 0) != 0);
  }
}
