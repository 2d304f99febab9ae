// SPDX-License-Identifier: Apache-2.0
//
// The law of the house: the same run gives the same bits under every strategy and transport. Losses, gradient norms and
// final parameters are compared as text and bytes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "support/ddhost_process.hpp"

using namespace ddhost::test;

namespace {

struct Result {
  std::string command;
  RunRecord record;
  std::string loss, grad_norm, weights;
};

// One strategy in one of the ways that a transport may serve it.
struct Way {
  const char* strategy;
  const char* comm;
  std::vector<std::string> options;
  bool always = false;  // else with DDHOST_ALL_WAYS only
};

Result run(const Way& way, int world, const std::vector<std::string>& options) {
  const TempFolder folder;
  std::vector<std::string> args = {"--strategy",
                                   way.strategy,
                                   "--comm",
                                   way.comm,
                                   "--model",
                                   toy_model(),
                                   "--nproc",
                                   std::to_string(world),
                                   "--save-final",
                                   folder.file("final.safetensors"),
                                   "run.dir=" + folder.file("run"),
                                   "run.quiet=true",
                                   "train.steps=20",
                                   "optimizer.lr=0.01"};
  args.insert(args.end(), way.options.begin(), way.options.end());
  args.insert(args.end(), options.begin(), options.end());
  Process process(args);
  const int code = process.wait();
  INFO(process.command() << "\n" << process.err());
  REQUIRE(code == 0);
  Result result{process.command(), read_run(folder.path() / "run"), "", "",
                read_text(folder.file("final.safetensors"))};
  REQUIRE(result.record.steps.size() == 20);
  REQUIRE(result.weights.size() > 1000);
  result.loss = result.record.column("loss");
  result.grad_norm = result.record.column("grad_norm");
  return result;
}

// Where the files of offloaded states lie.
const std::string kNvmePath = "strategy.nvme_path=" + std::filesystem::temp_directory_path().string();

const std::vector<Way> kWays = {
    {"ddp", "loop", {}, true},
    {"ddp", "shm", {}},
    {"ddp", "loop", {"comm.windows=copy"}},
    {"zero1", "loop", {}},
    {"zero1", "shm", {}, true},
    {"zero1", "loop", {"comm.windows=copy", "comm.poison=true"}},
    {"zero2", "loop", {}},
    {"zero2", "shm", {}},
    {"zero2", "loop", {"comm.windows=copy", "comm.poison=true"}, true},
    {"zero3", "loop", {}},
    {"zero3", "shm", {}, true},
    {"zero3", "loop", {"comm.windows=copy", "comm.poison=true"}},
    {"zero3", "shm", {"comm.windows=copy", "comm.poison=true", "strategy.prefetch_units=0"}, true},
    {"zero3", "shm", {"strategy.prefetch_units=3"}},
    {"fsdp", "loop", {}, true},
    {"fsdp", "shm", {"strategy.sharding_strategy=FULL_SHARD", "strategy.backward_prefetch=post"}},
    {"fsdp", "loop", {"comm.windows=copy", "comm.poison=true", "strategy.limit_all_gathers=false"}},
    {"fsdp", "shm", {"strategy.sharding_strategy=shard_grad_op"}},
    {"fsdp", "loop", {"strategy.sharding_strategy=shard_grad_op", "comm.windows=copy", "comm.poison=true"}, true},
    {"fsdp", "shm", {"strategy.sharding_strategy=no_shard"}, true},
    {"fsdp", "loop", {"strategy.sharding_strategy=no_shard", "comm.windows=copy", "comm.poison=true"}},
    {"fsdp",
     "loop",
     {"comm.windows=copy", "comm.poison=true", "strategy.auto_wrap_policy=size", "strategy.min_num_params=200",
      "strategy.backward_prefetch=none", "strategy.forward_prefetch=false"}},
    {"fsdp", "shm", {"strategy.auto_wrap_policy=none", "strategy.reshard_after_forward=false"}},
    {"zero3_offload", "shm", {"strategy.offload_optimizer.device=none"}},
    {"zero3_offload", "loop", {"strategy.offload_optimizer.device=cpu"}, true},
    {"zero3_offload", "shm", {"strategy.offload_optimizer.device=nvme", kNvmePath}},
    {"zero3_offload",
     "loop",
     {"strategy.offload_optimizer.device=nvme", kNvmePath, "comm.windows=copy", "comm.poison=true",
      "strategy.io=pread"}},
    {"zero3_offload",
     "shm",
     {"strategy.offload_optimizer.device=cpu", "strategy.offload_param.device=cpu", "strategy.prefetch_units=3"}},
    {"zero3_offload",
     "shm",
     {"strategy.offload_optimizer.device=nvme", "strategy.offload_param.device=nvme", kNvmePath},
     true},
    {"zero3_offload",
     "loop",
     {"strategy.offload_optimizer.device=none", "strategy.offload_param.device=nvme", kNvmePath,
      "strategy.prefetch_units=0"}},
};

// Matrices of 350 elements, which any strategy would cut.
const char* const kManyBlocks = "model.hidden=70";

const Way kDdp = {"ddp", "shm", {}}, kZero1 = {"zero1", "shm", {}}, kZero3 = {"zero3", "shm", {}};

// zero3_offload computes in fp32, and updates element by element.
bool offers(const Way& way, const std::vector<std::string>& options) {
  const bool refused = std::any_of(options.begin(), options.end(), [](const std::string& option) {
    return option == "lamb" || option == "muon" ||
           (option.rfind("precision.compute=", 0) == 0 && option != "precision.compute=fp32");
  });
  return !refused || std::string(way.strategy) != "zero3_offload";
}

// The ways that this run takes: a selection, or with DDHOST_ALL_WAYS all of them.
bool is_taken(const Way& way) { return way.always || std::getenv("DDHOST_ALL_WAYS") != nullptr; }

// Every way against ddp on loop. A difference prints the two commands. Returns the number of cells.
int check_all_equal(int world, const std::vector<std::string>& options) {
  const Result reference = run(kWays[0], world, options);
  int cells = 1;
  for (size_t i = 1; i < kWays.size(); ++i) {
    if (!is_taken(kWays[i]) || !offers(kWays[i], options)) continue;
    const Result other = run(kWays[i], world, options);
    ++cells;
    INFO("reference: " << reference.command << "\nother:     " << other.command);
    CHECK(other.loss == reference.loss);
    CHECK(other.grad_norm == reference.grad_norm);
    CHECK((other.weights == reference.weights));
  }
  return cells;
}

}  // namespace

TEST_CASE("every strategy gives the same bits: plain", "[equivalence]") { check_all_equal(GENERATE(1, 2, 3, 4), {}); }

TEST_CASE("every strategy gives the same bits: accumulation, ranks first", "[equivalence]") {
  check_all_equal(GENERATE(1, 2, 3, 4),
                  {"train.grad_accum_steps=3", "train.reduce_order=rank_first", "data.micro_batch=3"});
}

TEST_CASE("every strategy gives the same bits: accumulation, micro-batches first", "[equivalence]") {
  check_all_equal(GENERATE(1, 2, 3, 4),
                  {"train.grad_accum_steps=3", "train.reduce_order=micro_first", "data.micro_batch=3"});
}

TEST_CASE("every strategy gives the same bits: a unit that occurs three times", "[equivalence]") {
  check_all_equal(GENERATE(1, 2, 3), {"model.repeat=2"});
  check_all_equal(2, {"model.repeat=1", "train.grad_accum_steps=2", "train.reduce_order=micro_first"});
}

TEST_CASE("recomputed activations change no bit, under every strategy", "[equivalence]") {
  const int world = GENERATE(1, 3);
  const Result kept = run(kWays[0], world, {"train.grad_accum_steps=2"});
  for (const char* every : {"1", "2"}) {
    const std::vector<std::string> options = {std::string("train.recompute=") + every, "train.grad_accum_steps=2"};
    check_all_equal(world, options);
    const Result recomputed = run(kWays[0], world, options);
    CHECK(recomputed.loss == kept.loss);
    CHECK((recomputed.weights == kept.weights));
  }
}

TEST_CASE("shards inside nodes and replicas across them give the bits of sums in blocks", "[equivalence]") {
  const auto options = GENERATE(std::vector<std::string>{}, std::vector<std::string>{"train.grad_accum_steps=3"},
                                std::vector<std::string>{"--optimizer", "lamb", kManyBlocks},
                                std::vector<std::string>{"precision.compute=bf16"});
  std::vector<std::string> blocks = {"train.reduce_block=2", "run.ranks_per_node=2", "data.micro_batch=3"};
  blocks.insert(blocks.end(), options.begin(), options.end());
  const Result reference = run(kWays[0], 4, blocks);
  for (const char* comm : {"loop", "shm"}) {
    for (const char* windows : {"comm.windows=auto", "comm.windows=copy"}) {
      const Result hybrid = run({"fsdp", comm, {"strategy.sharding_strategy=hybrid_shard", windows}}, 4, blocks);
      INFO("reference: " << reference.command << "\nother:     " << hybrid.command);
      CHECK(hybrid.loss == reference.loss);
      CHECK(hybrid.grad_norm == reference.grad_norm);
      CHECK((hybrid.weights == reference.weights));
      const auto& plan = hybrid.record.summary.at("plan_bytes");
      for (const char* tag : {"param", "grad", "optim"}) {
        INFO(tag);
        CHECK(hybrid.record.summary.at("ranks").at(0).at("memory_bytes").at(tag).at("peak") == plan.at(tag));
      }
    }
  }
}

TEST_CASE("every strategy gives the same bits: tight clipping with momentum and more ranks than blocks",
          "[equivalence]") {
  check_all_equal(GENERATE(4, 8),
                  {"--optimizer", "sgd", "optimizer.momentum=0.9", "train.clip_norm=0.05", "data.micro_batch=2"});
}

TEST_CASE("every strategy gives the same bits: blocks of two ranks in the order of sums", "[equivalence]") {
  check_all_equal(4, {"train.reduce_block=2", "data.micro_batch=5"});
}

TEST_CASE("every strategy gives the same bits: an optimizer that keeps one number per element", "[equivalence]") {
  check_all_equal(GENERATE(1, 2, 3), {"--optimizer", "lion", "train.clip_norm=0.5", "optimizer.weight_decay=0.1"});
}

TEST_CASE("every strategy gives the same bits: an optimizer that needs the norm of each parameter", "[equivalence]") {
  check_all_equal(GENERATE(1, 2, 3),
                  {"--optimizer", "lamb", "optimizer.weight_decay=0.1", "model.nan_at_step=5", kManyBlocks});
}

TEST_CASE("every strategy gives the same bits: an optimizer that needs matrices whole, and two for the rest",
          "[equivalence]") {
  check_all_equal(GENERATE(1, 2, 3),
                  {"--optimizer", "muon", "train.clip_norm=0.5", "model.nan_at_step=5", kManyBlocks});
}

TEST_CASE("every strategy gives the same bits: norms and whole matrices over bf16 values", "[equivalence]") {
  check_all_equal(2, {"--optimizer", GENERATE("lamb", "muon"), "precision.compute=bf16", kManyBlocks});
}

TEST_CASE("every strategy gives the same bits: whole matrices, accumulation and more ranks than matrices",
          "[equivalence]") {
  check_all_equal(8, {"--optimizer", "muon", kManyBlocks, "train.grad_accum_steps=2", "data.micro_batch=2",
                      GENERATE("train.reduce_order=rank_first", "train.reduce_order=micro_first")});
}

TEST_CASE("every strategy skips the step whose gradient holds a NaN, and goes on alike", "[equivalence]") {
  check_all_equal(2, {"model.nan_at_step=5"});
  const Result result = run(kZero3, 2, {"model.nan_at_step=5"});
  for (const auto& step : result.record.steps) {
    CHECK(step.at("skipped").get<bool>() == (step.at("step") == 5));
    CHECK(step.at("grad_norm").is_null() == (step.at("step") == 5));
    CHECK(step.at("loss").is_number());
  }
}

TEST_CASE("every strategy gives the same bits: bf16", "[equivalence]") {
  check_all_equal(GENERATE(1, 2, 3), {"precision.compute=bf16", "train.grad_accum_steps=2"});
}

TEST_CASE("every strategy gives the same bits: fp16, whose scale is found by overflows that all skip alike",
          "[equivalence]") {
  const std::vector<std::string> options = {"precision.compute=fp16", "precision.initial_scale_power=30",
                                            "precision.hysteresis=1"};
  check_all_equal(GENERATE(2, 3), options);
  const Result result = run(kZero3, 2, options);
  int skipped = 0;
  double scale = 0x1p30;
  for (const auto& step : result.record.steps) {
    CHECK(step.at("loss_scale").get<double>() == scale);
    if (!step.at("skipped").get<bool>()) continue;
    ++skipped;
    scale /= 2;
  }
  CHECK(skipped > 2);
  CHECK_FALSE(result.record.steps.back().at("skipped").get<bool>());
}

TEST_CASE("low precision changes the loss by its rounding alone", "[equivalence]") {
  const Result fp32 = run(kZero1, 2, {}), bf16 = run(kZero1, 2, {"precision.compute=bf16"}),
               fp16 = run(kZero1, 2, {"precision.compute=fp16", "precision.initial_scale_power=4"});
  for (size_t i = 0; i < fp32.record.steps.size(); ++i) {
    const double expected = fp32.record.steps[i].at("loss");
    CHECK(bf16.record.steps[i].at("loss").get<double>() == Approx(expected).epsilon(1e-2));
    CHECK(fp16.record.steps[i].at("loss").get<double>() == Approx(expected).epsilon(1e-3));
  }
  CHECK(bf16.loss != fp32.loss);
  CHECK(fp16.loss != fp32.loss);
}

// The whole matrix: run with DDHOST_ALL_WAYS by `./dev test --all`.
TEST_CASE("the matrix of strategies, worlds, precisions and features holds no difference", "[.matrix]") {
  const std::vector<std::vector<std::string>> features = {
      {},
      {"train.grad_accum_steps=3"},
      {"train.grad_accum_steps=3", "train.reduce_order=micro_first"},
      {"train.clip_norm=0.05"},
      {"train.recompute=1"},
      {"model.repeat=1", "train.recompute=2"},
      {"model.nan_at_step=7"},
      {"train.eval_every=4", "train.eval_batches=2"}};
  int cells = 0;
  for (const int world : {1, 2, 3, 4, 8}) {
    for (const char* precision : {"fp32", "bf16", "fp16"}) {
      for (std::vector<std::string> options : features) {
        options.push_back(std::string("precision.compute=") + precision);
        options.emplace_back("precision.initial_scale_power=20");
        options.emplace_back("data.micro_batch=3");
        cells += check_all_equal(world, options);
      }
    }
  }
  WARN(cells << " cells, all equal");
}

namespace {

// On a device with memory of its own and late streams, which ends the run at the first work that nothing orders. Transports
// see staging memory there; the options of windows are as on the CPU's copying way.
Way on_sim(const char* strategy, const char* comm) {
  return {strategy,
          comm,
          {"--device", "sim", "device.delay_us=30", "device.jitter_us=100", "device.seed=5", "comm.poison=true"}};
}

}  // namespace

TEST_CASE("a device with memory of its own gives the bits of the CPU under every strategy", "[equivalence][device]") {
  const auto options = GENERATE(
      std::vector<std::string>{},
      std::vector<std::string>{"train.grad_accum_steps=2", "train.reduce_order=rank_first", "train.eval_every=7"},
      std::vector<std::string>{"train.grad_accum_steps=2", "train.reduce_order=micro_first"},
      std::vector<std::string>{"precision.compute=bf16"}, std::vector<std::string>{"--optimizer", "lamb"});
  const Result reference = run({"ddp", "loop", {"comm.windows=copy"}}, 3, options);
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "fsdp"}) {
    const Result other = run(on_sim(strategy, "loop"), 3, options);
    INFO("reference: " << reference.command << "\nother:     " << other.command);
    CHECK(other.loss == reference.loss);
    CHECK(other.grad_norm == reference.grad_norm);
    CHECK((other.weights == reference.weights));
    const auto& plan = other.record.summary.at("plan_bytes");
    for (const char* tag : {"param", "grad", "optim"}) {
      CHECK(other.record.summary.at("ranks").at(0).at("memory_bytes").at(tag).at("peak") == plan.at(tag));
    }
  }
}

TEST_CASE("a device serves ranks that are processes, and prefetching strategies", "[equivalence][device]") {
  Way way = on_sim("zero3", "shm");
  way.options.push_back("strategy.prefetch_units=3");
  const Result reference = run(kDdp, 2, {}), other = run(way, 2, {});
  CHECK(other.loss == reference.loss);
  CHECK((other.weights == reference.weights));
}

TEST_CASE("collectives of a strategy's own go through staging on such a device", "[equivalence][device]") {
  const std::vector<std::string> options = {"train.grad_accum_steps=2", "train.reduce_block=2"};
  Way way = on_sim("fsdp", "loop");
  way.options.emplace_back("strategy.sharding_strategy=hybrid_shard");
  way.options.emplace_back("strategy.shard_size=2");
  const Result reference = run(kDdp, 4, options), other = run(way, 4, options);
  CHECK(other.loss == reference.loss);
  CHECK(other.grad_norm == reference.grad_norm);
  CHECK((other.weights == reference.weights));
}

TEST_CASE("offloading to the host's memory is a true copy on a device with memory of its own",
          "[equivalence][device]") {
  Way way = on_sim("zero3_offload", "loop");
  way.options.emplace_back(GENERATE("strategy.offload_param.device=none", "strategy.offload_param.device=cpu"));
  for (const char* option : {"strategy.buffer_bytes=4096", "strategy.buffer_count=2", "model.hidden=130"})
    way.options.emplace_back(option);
  const Result reference = run(kDdp, 2, {"model.hidden=130"}), other = run(way, 2, {});
  CHECK(other.loss == reference.loss);
  CHECK(other.grad_norm == reference.grad_norm);
  CHECK((other.weights == reference.weights));
}

TEST_CASE("two runs give the same file", "[equivalence]") {
  const Result first = run(kZero3, 3, {}), second = run(kZero3, 3, {});
  CHECK(first.loss == second.loss);
  CHECK((first.weights == second.weights));
}

TEST_CASE("the loss falls, and the world size changes it by rounding alone", "[equivalence]") {
  const Result one = run(kDdp, 1, {"data.micro_batch=12"});
  CHECK(one.record.steps.back().at("loss").get<double>() < 0.98 * one.record.steps.front().at("loss").get<double>());
  for (const int world : {2, 3, 4}) {
    const Result other = run(kZero3, world, {"data.micro_batch=" + std::to_string(12 / world)});
    for (size_t i = 0; i < one.record.steps.size(); ++i) {
      const double expected = one.record.steps[i].at("loss");
      CHECK(other.record.steps[i].at("loss").get<double>() == Approx(expected).epsilon(1e-5));
    }
  }
}

namespace {

// Bytes of the toy model's parameters, each padded to 64 elements: vocab 31, width 5, hidden 9, three layers.
uint64_t padded(uint64_t numel) { return (numel + 63) / 64 * 64 * 4; }
const uint64_t kTrainedBytes =
    padded(31 * 5) + 3 * (2 * padded(9 * 5) + padded(9) + padded(1) + padded(3)) + padded(31);
const uint64_t kFrozenBytes = 3 * padded(5);

uint64_t peak(const Result& result, size_t rank, const char* tag) {
  return result.record.summary.at("ranks").at(rank).at("memory_bytes").at(tag).at("peak");
}

}  // namespace

TEST_CASE("memory by tag equals the strategy's plan to the byte", "[memory]") {
  const auto options =
      GENERATE(std::vector<std::string>{}, std::vector<std::string>{"train.grad_accum_steps=2"},
               std::vector<std::string>{"train.grad_accum_steps=2", "train.reduce_order=micro_first"},
               std::vector<std::string>{"precision.compute=bf16"}, std::vector<std::string>{"model.repeat=1"},
               std::vector<std::string>{"train.recompute=1"},
               std::vector<std::string>{"--optimizer", "muon", "train.grad_accum_steps=2"});
  for (const Way& way : kWays) {
    if (!is_taken(way)) continue;
    if (!offers(way, options)) continue;
    const Result result = run(way, 2, options);
    INFO(result.command);
    const auto& plan = result.record.summary.at("plan_bytes");
    for (const char* tag : {"param", "grad", "optim"}) {
      INFO(tag);
      CHECK(peak(result, 0, tag) == plan.at(tag).get<uint64_t>());
    }
  }
}

TEST_CASE("ddp holds 16 bytes and zero1 8 + 8/N bytes for each padded parameter", "[memory]") {
  for (const int world : {1, 2}) {
    const auto N = static_cast<uint64_t>(world);
    const Result ddp = run(kDdp, world, {}), zero1 = run(kZero1, world, {});
    uint64_t zero1_optim = 0, unique = 0;
    for (size_t r = 0; r < N; ++r) {
      CHECK(peak(ddp, r, "param") == kTrainedBytes + kFrozenBytes);
      CHECK(peak(ddp, r, "grad") == kTrainedBytes);
      CHECK(peak(ddp, r, "optim") == 2 * kTrainedBytes);
      CHECK(peak(zero1, r, "param") == kTrainedBytes + kFrozenBytes);
      CHECK(peak(zero1, r, "grad") == kTrainedBytes);
      zero1_optim += peak(zero1, r, "optim");
    }
    CHECK(zero1_optim == 2 * kTrainedBytes);
    for (const char* tag : {"param", "grad", "optim"}) {
      unique += zero1.record.summary.at("unique_peak_bytes").at(tag).get<uint64_t>();
    }
    CHECK(unique == kTrainedBytes + kFrozenBytes + N * kTrainedBytes + 2 * kTrainedBytes);  // 4 + 4 N + 8 bytes
  }
}

TEST_CASE("zero3 keeps 16/N bytes for each padded parameter and what is in flight", "[memory]") {
  const Result result = run(kZero3, 2, {});
  uint64_t segments = 0;
  for (size_t r = 0; r < 2; ++r) {
    const auto& memory = result.record.summary.at("ranks").at(r).at("memory_bytes");
    segments += memory.at("param").at("now").get<uint64_t>();
  }
  CHECK(segments == kTrainedBytes + kFrozenBytes);
  const uint64_t layer = 2 * padded(9 * 5) + padded(9) + padded(1) + padded(3);
  const uint64_t grads = peak(result, 0, "grad") + peak(result, 1, "grad");
  CHECK(grads == kTrainedBytes + 2 * (padded(31 * 5) + 2 * layer));  // segments; tied gradient and ring, on each rank
}

TEST_CASE("muon keeps one number for each element of a matrix and two for the rest", "[memory]") {
  const uint64_t matrices = 3 * 2 * padded(9 * 5);  // the embedding is adamw's
  for (const Way& way : {kDdp, kZero3}) {
    const Result result = run(way, 2, {"--optimizer", "muon"});
    uint64_t bytes = 0;
    for (size_t r = 0; r < 2; ++r) bytes += peak(result, r, "optim");
    CHECK(bytes == (way.strategy == kDdp.strategy ? 2 : 1) * (2 * kTrainedBytes - matrices));
  }
}

TEST_CASE("collectives per step equal the strategy's plan", "[counts]") {
  for (const Way& way : kWays) {
    if (!is_taken(way)) continue;
    for (const auto& [accum, optimizer] : {std::pair{"1", "adamw"}, {"3", "adamw"}, {"1", "muon"}}) {
      if (!offers(way, {optimizer})) continue;
      const Result result = run(way, 2, {"--optimizer", optimizer, std::string("train.grad_accum_steps=") + accum});
      INFO(result.command);
      const auto& counters = result.record.summary.at("counters");
      const auto& plan = result.record.summary.at("plan_calls");
      CHECK(counters.value("comm.reduce", 0) + counters.value("comm.all_reduce", 0) ==
            20 * plan.at("reduce").get<int>());
      CHECK(counters.value("comm.publish", 0) + counters.value("comm.all_gather", 0) ==
            20 * plan.at("publish").get<int>());
    }
  }
}
