// SPDX-License-Identifier: Apache-2.0
//
// Runs of the program over nccl, on the stand-ins for the driver and for NCCL: the bits of the CPU under every strategy,
// and runs that lose a rank.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "equivalence/variants.hpp"
#include "fixtures/harness/built.hpp"
#include "fixtures/harness/setting.hpp"
#include "fixtures/harness/toy_run.hpp"

using namespace ddhost::test;
using Catch::Contains;

namespace {

const std::string kStandin = std::string(DDHOST_BUILD_DIR) + "/tests/standin/";
const std::string kModel = test_plugin("kernel_toy");
const Options kNccl = {"device.driver=" + kStandin + "libcuda.so.1", "comm.library=" + kStandin + "libnccl.so.2"};

void check_bits(const std::string& strategy, int world, const Options& options, const Options& of_strategy = {}) {
  const Result cpu = run(Cell{{"ddp", "loop", {}}, world, options, 4, kModel});
  REQUIRE(cpu.code == 0);
  const Setting gpus("DDHOST_STANDIN_GPUS", "4");
  const Result gpu = run(
      Cell{{strategy, "nccl", joined({"--device", "cuda"}, of_strategy)}, world, joined(options, kNccl), 4, kModel});
  INFO(gpu.command << "\n" << cpu.command << "\n" << gpu.err);
  REQUIRE(gpu.code == 0);
  CHECK(cpu.loss == gpu.loss);
  CHECK(cpu.grad_norm == gpu.grad_norm);
  CHECK(cpu.weights == gpu.weights);
}

ToyRun nccl_run(const Options& options) {
  const Setting gpus("DDHOST_STANDIN_GPUS", "2");
  return ran(toy_run(joined({"--device", "cuda", "--comm", "nccl", "train.steps=2"}, kNccl), options, kModel));
}

// How often the two ranks of a run waited for their GPUs, from its start to its end.
int64_t waits_of(const Options& options) {
  const TempFolder folder;
  const Setting file("DDHOST_STANDIN_WAITS", folder.file("waits"));
  (void)nccl_run(options);
  std::ifstream in(folder.file("waits"));
  int64_t sum = 0, ranks = 0;
  for (int64_t waits = 0; in >> waits; ++ranks) sum += waits;
  REQUIRE(ranks == 2);
  return sum;
}

// The calls of NCCL that the stand-in notes.
std::string calls_of(const Options& options) {
  const TempFolder folder;
  const Setting file("DDHOST_STANDIN_NCCL_CALLS", folder.file("calls"));
  (void)nccl_run(options);
  return read_text(folder.file("calls"));
}

// The operations of NCCL on each of the two ranks.
int64_t operations_of(const Options& options) {
  const std::string calls = calls_of(options);
  int64_t n = 0;
  for (size_t at = calls.find("operation\n"); at != std::string::npos; at = calls.find("operation\n", at + 1)) ++n;
  REQUIRE(n > 0);
  REQUIRE(n % 2 == 0);
  return n / 2;
}

// A run of four steps with a checkpoint after each, whose operations of NCCL after the first `done` are lost.
struct LostRun {
  std::string err;
  size_t rows;
  std::vector<std::string> checkpoints;
};
LostRun run_without(int64_t done, const Options& options) {
  const TempFolder folder;
  const Setting gpus("DDHOST_STANDIN_GPUS", "2"), lost("DDHOST_STANDIN_NCCL_LOST", "1:" + std::to_string(done));
  const Options four = {"--device",
                        "cuda",
                        "--comm",
                        "nccl",
                        "train.steps=4",
                        "checkpoint.every=1",
                        "checkpoint.async=false",
                        "run.dir=" + folder.file("lost")};
  const ToyRun run = toy_run(joined(four, kNccl), options, kModel);
  CHECK(run.code > 0);
  LostRun out{run.err, read_run(folder.path() / "lost").steps.size(), {}};
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "lost" / "checkpoints"))
    if (entry.path().filename().string().starts_with("step-")) out.checkpoints.push_back(entry.path().filename());
  std::sort(out.checkpoints.begin(), out.checkpoints.end());
  return out;
}

}  // namespace

// Over shm the host also waits in collectives.
TEST_CASE("in a step over nccl the host waits for the GPU once, in decide, and with lamb once more for its norms",
          "[gpu]") {
  struct Case {
    const char* strategy;
    int micro_batches;
    Options more{};
    int64_t waits = 1;
  };
  const Options lamb = {"optimizer.plugin=lamb"};
  const auto [strategy, micro_batches, more, waits] = GENERATE_COPY(
      Case{"ddp", 2}, Case{"ddp", 4}, Case{"zero1", 2}, Case{"zero2", 1}, Case{"zero2", 2}, Case{"zero3", 2},
      Case{"fsdp", 2}, Case{"zero3_offload", 2},
      Case{"zero3_offload", 2, {"strategy.offload_optimizer.device=cpu", "strategy.offload_param.device=cpu"}},
      Case{"ddp", 2, lamb, 2}, Case{"zero2", 2, lamb, 2}, Case{"zero3", 2, lamb, 2});
  // A comparison of replicas waits too.
  const Options options = joined(
      {"--strategy", strategy, "run.check_replicas=0", "train.grad_accum_steps=" + std::to_string(micro_batches)},
      more);
  INFO(strategy << ", micro-batches: " << micro_batches << ", waits: " << waits);
  const int64_t more_waits =
      waits_of(joined(options, {"train.steps=4"})) - waits_of(joined(options, {"train.steps=2"}));
  CHECK(more_waits == int64_t{2} * 2 * waits);  // ranks, steps
}

TEST_CASE("the settings NCCL_... reach NCCL and are in the log", "[gpu]") {
  const Setting debug("NCCL_DEBUG", "WARN");
  CHECK_THAT(calls_of({}), Contains("NCCL_DEBUG WARN"));
  const ToyRun run = nccl_run({"run.quiet=false"});
  CHECK_THAT(run.out + run.err, Contains("NCCL 2.28.9, 2 ranks") && Contains(", NCCL_DEBUG=WARN"));
}

TEST_CASE("comm.cta_policy reaches NCCL, and comm.register_buffers=false registers nothing", "[gpu]") {
  const std::string calls = calls_of({});
  CHECK_THAT(calls, Contains("CTA policy of its own") && Contains("register\n"));
  CHECK_THAT(calls_of({"comm.cta_policy=2"}), Contains("CTA policy 2") && !Contains("of its own"));
  {
    const Setting old("DDHOST_STANDIN_NCCL_VERSION", "22600");  // which does not know the setting
    CHECK_THAT(calls_of({"comm.cta_policy=2"}), Contains("CTA policy of its own"));
  }
  CHECK_THAT(calls_of({"comm.register_buffers=false"}), Contains("init") && !Contains("register"));
}

TEST_CASE("a run whose memory NCCL does not register says so once, and ends well", "[gpu]") {
  const Setting none("DDHOST_STANDIN_NCCL_NO_BUFFERS", "1");
  const std::string words = "NCCL's ncclCommRegister failed in group 'world'";
  const std::string err = nccl_run({"--strategy", "zero3", "run.quiet=false"}).err;
  INFO(err);
  const size_t first = err.find(words);
  CHECK(first != std::string::npos);
  CHECK(err.find(words, first + 1) == std::string::npos);
  CHECK_THAT(nccl_run({"run.quiet=false", "comm.register_buffers=false"}).err, !Contains(words));
}

TEST_CASE("a run over NCCL has the bits of the CPU under every strategy", "[gpu]") {
  const std::string strategy = GENERATE(from_range(taken_strategies()));
  check_bits(strategy, 2, {"data.micro_batch=4", "precision.compute=bf16", "precision.reduce_dtype=bf16"});
  check_bits(strategy, 2, {"data.micro_batch=3", "train.grad_accum_steps=2", "train.clip_norm=0.5"});
}

TEST_CASE("three ranks over NCCL, blocks of sums, and either order of accumulation have the bits of the CPU", "[gpu]") {
  check_bits("zero3", 3, {"data.micro_batch=2", "train.reduce_block=2"});
  check_bits("zero2", 3, {"data.micro_batch=2", "train.grad_accum_steps=2", "train.reduce_order=rank_first"});
  check_bits("fsdp", 1, {"data.micro_batch=2"});
}

TEST_CASE("windows and exchanges in symmetric memory of NCCL have the bits of the CPU under every strategy", "[gpu]") {
  const std::string strategy = GENERATE(from_range(taken_strategies()));
  const int ranks = strategy == "zero1" || strategy == "zero3" ? 3 : 2;  // segments of three ranks are uneven
  check_bits(strategy, ranks, {"data.micro_batch=2"}, {"comm.symmetric_windows=true"});
}

// Over shm the host waits at each gather, which hides missing waits between streams.
TEST_CASE("parameters and states in files have the bits of the CPU over NCCL, in any order of queued work", "[gpu]") {
  const char* const seed = GENERATE("1", "2", "3");
  const Setting order("DDHOST_STANDIN_ORDER", seed);
  const TempFolder folder;
  check_bits(
      "zero3_offload", 2, {"data.micro_batch=2", "train.grad_accum_steps=2"},
      {"strategy.offload_param.device=nvme", "strategy.offload_optimizer.device=nvme", "strategy.prefetch_units=1",
       "strategy.buffer_bytes=4096", "strategy.nvme_path=" + folder.path().string()});
}

TEST_CASE("other orders of queued work give the same bits over NCCL", "[gpu]") {
  const Setting order("DDHOST_STANDIN_ORDER", "5");
  check_bits("zero3", 2, {"data.micro_batch=4"}, {"strategy.prefetch_units=3"});
}

TEST_CASE("sums in NCCL's own order give other bits, close to those in rank order, and the same in every run",
          "[gpu]") {
  const std::string strategy = GENERATE("ddp", "zero2", "zero3");
  const Setting gpus("DDHOST_STANDIN_GPUS", "3");
  const auto run_with = [&](const char* ordered) {
    const Options options =
        joined({"data.micro_batch=2", "train.grad_accum_steps=2", std::string("comm.ordered_sums=") + ordered}, kNccl);
    Result out = run(Cell{{strategy, "nccl", {"--device", "cuda"}}, 3, options, 4, kModel});
    INFO(out.command << "\n" << out.err);
    REQUIRE(out.code == 0);
    return out;
  };
  const Result ordered = run_with("true"), free = run_with("false"), again = run_with("false");
  CHECK(free.weights != ordered.weights);
  CHECK(loss_distance(free, ordered) < 1e-5);
  CHECK(free.loss == again.loss);
  CHECK(free.weights == again.weights);
}

// Other strategies gather into memory that is not registered, and NCCL's own sums of zero2 go to such memory.
TEST_CASE("ddp, zero1 and zero2 give NCCL registered memory only, but for contributions to sums", "[gpu]") {
  const std::string strategy = GENERATE("ddp", "zero1", "zero2");
  const Setting strict("DDHOST_STANDIN_NCCL_STRICT", "1");
  for (const char* windows : {"comm.symmetric_windows=true", "comm.symmetric_windows=false"})
    for (const char* ordered : {"true", "false"})
      if (strategy != "zero2" || ordered == std::string("true"))
        (void)nccl_run({"--strategy", strategy, windows, std::string("comm.ordered_sums=") + ordered});
}

TEST_CASE("a strict NCCL refuses memory that is not registered", "[gpu]") {
  const Setting gpus("DDHOST_STANDIN_GPUS", "2"), strict("DDHOST_STANDIN_NCCL_STRICT", "1");
  const auto refused = [](const Options& options) {
    const ToyRun run = toy_run(joined({"--device", "cuda", "--comm", "nccl", "train.steps=2"}, kNccl), options, kModel);
    INFO(run.command << "\n" << run.err);
    CHECK(run.code > 0);
    CHECK_THAT(run.err, Contains("bytes that are in no registration and in no window"));
  };
  refused({"comm.register_buffers=false"});
  refused({"--strategy", "zero3"});
  refused({"--strategy", "zero2", "comm.ordered_sums=false"});
  const Setting ignored("DDHOST_STANDIN_IGNORES", "ncclCommWindowRegister");
  refused({"comm.symmetric_windows=true"});
}

TEST_CASE("a rank that NCCL loses ends the run with a sentence, although its GPUs wait for ever", "[gpu]") {
  const std::string ranks = GENERATE("2", "3", "4");
  const Setting gpus("DDHOST_STANDIN_GPUS", ranks), lost("DDHOST_STANDIN_NCCL_LOST", "1:7");
  const Options options = {"--device", "cuda", "--comm", "nccl", "train.steps=4", "run.nproc=" + ranks};
  // The next call of NCCL finds it, or the watch between two calls does.
  check_refused(toy_run(joined(options, kNccl), {}, kModel), {"group 'world'", "remote process exited"});
}

// A wait for a GPU succeeds after NCCL was aborted, although the sum before it is lost.
TEST_CASE("a step whose last sum NCCL loses is in no row and no checkpoint", "[gpu]") {
  const std::string strategy = GENERATE(from_range(taken_strategies()));
  const Options options = {"--strategy", strategy};
  const int64_t first = operations_of(joined(options, {"train.steps=1"}));
  const int64_t each = operations_of(joined(options, {"train.steps=2"})) - first;
  const LostRun run = run_without(first + each - 1, options);  // the last one of step 2
  INFO(strategy << ": " << first << " operations in a run of one step, " << each << " in each more\n" << run.err);
  CHECK_THAT(run.err, Contains("NCCL reports an error in group 'world'"));
  CHECK(run.rows == 1);
  CHECK(run.checkpoints == std::vector<std::string>{"step-1"});
}

TEST_CASE("nccl without GPUs, or without a transport for host memory, is refused", "[gpu]") {
  check_refused(toy_run(joined({"--comm", "nccl", "train.steps=1"}, {}), {}, kModel),
                {"comm 'nccl' exchanges memory of a device", "device 'cpu' has host memory alone", "cuda"});
  check_refused(toy_run(joined({"--device", "cuda", "--comm", "nccl", "comm.host=loop"}, kNccl), {}, kModel),
                {"comm.host 'loop'", "choose another comm.host"});
}
