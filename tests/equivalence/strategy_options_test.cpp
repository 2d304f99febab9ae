// SPDX-License-Identifier: Apache-2.0
//
// The options of ddp, zero1, zero2 and zero3 change memory and messages but no result: every setting gives the bits of
// plain ddp. Memory and calls equal plan(), and the numbers of calls equal those computed from the toy model.
#include <catch2/catch.hpp>

#include "equivalence/variants.hpp"

using namespace ddhost::test;

namespace {

constexpr int kSteps = 6, kLayers = 5;

Result run(const std::string& strategy, int world, const Options& options) {
  const Options model = {"data.micro_batch=3", "model.layers=" + std::to_string(kLayers)};
  return ddhost::test::run(Variant{strategy, "loop", {}}, world, joined(model, options), kSteps);
}

// The kind of windows. Copied windows count every gather and poison released memory.
const Options kShared = {"comm.windows=auto"}, kCopies = {"comm.windows=copy", "comm.poison=true"};

const std::vector<Options> kAccumulations = {
    {},
    {"train.grad_accum_steps=3", "train.reduce_order=rank_first"},
    {"train.grad_accum_steps=3", "train.reduce_order=micro_first"},
};
// Reductions of a bucket in a step.
int micro_reductions(const Options& accumulation) {
  return !accumulation.empty() && accumulation[1] == "train.reduce_order=rank_first" ? 3 : 1;
}

uint64_t peak(const Result& result, const char* tag) { return peak_bytes(result, 0, tag); }
// In all steps.
int counted(const Result& result, const char* counter) {
  return result.record.summary.at("counters").value(counter, 0);
}

void check_plan_and_counts(const Result& result) {
  check_plan(result);
  check_counts(result);
}

// The toy model: bytes of parameters, each padded to 64 elements.
constexpr uint64_t kGrid = 64 * sizeof(float);
constexpr uint64_t kEmbed = 3 * kGrid;  // 31 x 5, tied: always in its own bucket
constexpr uint64_t kLayer = 5 * kGrid;  // w1, b1, w2, gain, unused
constexpr uint64_t kFrozen = kGrid;     // of each layer
constexpr uint64_t kHead = kGrid;       // the bias

// Buckets in backward order, closed when they have reached the limit; 0 means one unit each.
std::vector<uint64_t> buckets(uint64_t limit) {
  std::vector<uint64_t> out;
  bool is_full = true;
  for (int unit = kLayers + 1; unit > 0; --unit) {
    if (is_full) out.push_back(0);
    out.back() += unit > kLayers ? kHead : kLayer;
    is_full = out.back() >= limit;
  }
  out.push_back(kEmbed);
  return out;
}

const uint64_t kLimits[] = {0, kHead + 1, kLayer + kHead, 2 * kLayer, 1 << 30};

}  // namespace

TEST_CASE("a bucket takes units in the order of their backward until it reaches its size", "[options]") {
  std::vector<size_t> n;
  for (const uint64_t limit : kLimits) n.push_back(buckets(limit).size());
  CHECK(n == std::vector<size_t>{7, 6, 4, 4, 2});
}

TEST_CASE("buckets of any size give the bits of plain ddp, and one reduction each", "[options]") {
  const int world = GENERATE(2, 3);
  const auto accumulation = GENERATE(from_range(kAccumulations));
  const Result reference = run("ddp", world, joined(kShared, accumulation));
  for (const auto& [strategy, option] :
       {std::pair{"ddp", "bucket_bytes"}, {"zero1", "reduce_bucket_bytes"}, {"zero2", "reduce_bucket_bytes"}}) {
    for (const uint64_t limit : kLimits) {
      const Options& windows = (limit + static_cast<uint64_t>(world)) % 2 == 0 ? kCopies : kShared;
      const Result result =
          run(strategy, world,
              joined(joined(windows, accumulation), {std::string("strategy.") + option + "=" + std::to_string(limit)}));
      check_same_bits(reference, result);
      check_plan_and_counts(result);
      const auto n = static_cast<int>(buckets(limit).size());
      CHECK(counted(result, "comm.reduce") == kSteps * n * micro_reductions(accumulation));
      if (std::string(strategy) != "ddp") CHECK(counted(result, "comm.publish") == kSteps * n);
    }
  }
}

TEST_CASE("buckets hold whole matrices, and masters of low precision", "[options]") {
  const auto options = GENERATE(Options{"--optimizer", "muon", "model.hidden=70"},
                                Options{"--optimizer", "lamb", "model.hidden=70"}, Options{"precision.compute=bf16"});
  const Options& windows = GENERATE(kShared, kCopies);
  const Result reference = run("ddp", 3, options);
  for (const char* limit : {"100000", "3000"}) {
    for (const auto& [strategy, option] :
         {std::pair{"ddp", "bucket_bytes="}, {"zero1", "reduce_bucket_bytes="}, {"zero2", "reduce_bucket_bytes="}}) {
      const Result result =
          run(strategy, 3, joined(joined(windows, options), {std::string("strategy.") + option + limit}));
      check_same_bits(reference, result);
      check_plan_and_counts(result);
    }
  }
}

TEST_CASE("without overlap there is one gradient buffer less", "[options]") {
  const char* strategy = GENERATE("zero2", "zero3");
  const Options& windows = GENERATE(kShared, kCopies);
  const int world = GENERATE(2, 3);
  const Result reference = run("ddp", world, {"train.grad_accum_steps=2"});
  const Options options = joined(windows, {"train.grad_accum_steps=2"});
  const Result with = run(strategy, world, options);
  const Result without = run(strategy, world, joined(options, {"strategy.overlap_comm=false"}));
  check_same_bits(reference, without);
  check_plan_and_counts(without);
  CHECK(peak(with, "grad") - peak(without, "grad") == kLayer);
}

TEST_CASE("zero2 keeps two buffers of the largest bucket if they fit, and else what takes least", "[options]") {
  const Options buckets_of = joined(kShared, {"strategy.reduce_bucket_bytes=1537"});
  const auto grads = [](const Result& result) { return peak_bytes(result, 0, "grad") + peak_bytes(result, 1, "grad"); };
  // head + 2 layers, 2 layers, 1 layer: a ring of two for the largest; the tied gradients, whose sum stays in place; the
  // segments of both ranks.
  CHECK(buckets(1537) == std::vector<uint64_t>{kHead + 2 * kLayer, 2 * kLayer, kLayer, kEmbed});
  const Result two = run("zero2", 2, joined(buckets_of, {"strategy.grad_buffer_bytes=100000"}));
  CHECK(grads(two) == 2 * (2 * (kHead + 2 * kLayer) + kEmbed) + kHead + kLayers * kLayer);
  // One buffer less.
  const Result least = run("zero2", 2, buckets_of), full = run("zero1", 2, buckets_of);
  CHECK(grads(least) == 2 * (kHead + 2 * kLayer + kEmbed) + kHead + kLayers * kLayer);
  CHECK(grads(least) < grads(full));
  check_same_bits(two, least);
  check_same_bits(two, full);
}

TEST_CASE("a unit that is much larger than the others keeps its full gradients beside the ring", "[options]") {
  const int world = GENERATE(2, 3);
  const Options options = joined(kShared, {"model.layers=20", "model.vocab=2000"});
  constexpr uint64_t kLargeHead = 32 * kGrid, kLargeEmbed = 157 * kGrid;  // the bias of 2000, and 2000 x 5
  const Result reference = run("ddp", world, options);
  for (const auto& strategy : {"zero2", "zero3", "fsdp"}) {
    const Result result =
        run(strategy, world, joined(options, {"strategy.grad_buffer_bytes=" + std::to_string(2 * kLayer)}));
    check_same_bits(reference, result);
    check_plan_and_counts(result);
    uint64_t grads = 0;
    for (int rank = 0; rank < world; ++rank) grads += peak_bytes(result, static_cast<size_t>(rank), "grad");
    const uint64_t own = kLargeHead + kLargeEmbed, segments = 20 * kLayer;
    CHECK(grads == static_cast<uint64_t>(world) * (own + 2 * kLayer) + segments);
  }
}

TEST_CASE("waiting for a publish at the end of the step changes neither the number of gathers nor the bits",
          "[options]") {
  const char* strategy = GENERATE("zero1", "zero2");
  const Result reference = run("ddp", 3, {});
  for (const Options& windows : {kShared, kCopies}) {
    const Result overlapped = run(strategy, 3, windows);
    const Result waited = run(strategy, 3, joined(windows, {"strategy.overlap_publish=false"}));
    check_same_bits(reference, waited);
    check_plan_and_counts(waited);
    // Also after the last step, when no unit uses it any more.
    const int extra = windows == kCopies ? static_cast<int>(buckets(0).size()) : 0;
    CHECK(counted(waited, "comm.window_gathers") - counted(overlapped, "comm.window_gathers") == extra);
  }
}

TEST_CASE("zero3's prefetched and kept parameters change no bit", "[options]") {
  const int world = GENERATE(2, 3);
  const auto accumulation = GENERATE(from_range(kAccumulations));
  const Result reference = run("ddp", world, joined(kShared, accumulation));
  const std::vector<Options> settings = {
      {"strategy.prefetch_bytes=0"},
      {"strategy.prefetch_bytes=1"},
      {"strategy.prefetch_bytes=4000"},
      {"strategy.prefetch_bytes=1000000"},
      {"strategy.persistence_bytes=36"},
      {"strategy.persistence_bytes=200"},
      {"strategy.persistence_bytes=1000000"},
      {"strategy.reuse_bytes=1"},
      {"strategy.reuse_bytes=1000000"},
      {"strategy.reuse_bytes=1000000", "strategy.max_live_bytes=5000", "strategy.persistence_bytes=36"},
      {"strategy.prefetch_units=3", "strategy.max_live_bytes=3000", "strategy.overlap_comm=false"},
  };
  for (size_t i = 0; i < settings.size(); ++i) {
    const Options& windows = (i + static_cast<size_t>(world)) % 2 == 0 ? kCopies : kShared;
    const Result result = run("zero3", world, joined(joined(windows, accumulation), settings[i]));
    check_same_bits(reference, result);
    check_plan_and_counts(result);
  }
}

namespace {

int gathers_per_step(const Result& result) {
  CHECK(counted(result, "comm.window_gathers") % kSteps == 0);
  return counted(result, "comm.window_gathers") / kSteps;
}

Result zero3(const Options& options) { return run("zero3", 2, joined(kCopies, options)); }

}  // namespace

TEST_CASE("zero3 gathers as often as its limits require", "[options]") {
  // A layer has two spaces, including its frozen parameter; the head uses its bias and the embedding.
  const Result plain = zero3({});
  CHECK(gathers_per_step(plain) == kLayers * 2 * 2 + 1 + 3);  // the head stays from its forward to its backward
  const Result nothing_ahead = zero3({"strategy.prefetch_units=0"});
  CHECK(gathers_per_step(nothing_ahead) == kLayers * 2 * 2 + 2 + 4);

  SECTION("by prefetched bytes") {
    CHECK(gathers_per_step(zero3({"strategy.prefetch_bytes=1"})) == gathers_per_step(nothing_ahead));
    const std::string two_layers = "strategy.prefetch_bytes=" + std::to_string(2 * (kLayer + kFrozen));
    const Result two = zero3({"strategy.prefetch_units=2"}), by_bytes = zero3({two_layers});
    CHECK(gathers_per_step(by_bytes) == gathers_per_step(two));
    CHECK(peak(by_bytes, "param") == peak(two, "param"));
    CHECK(peak(two, "param") > peak(plain, "param"));
    const Result units_first = zero3({two_layers, "strategy.prefetch_units=1"});
    CHECK(peak(units_first, "param") == peak(plain, "param"));
  }
  SECTION("by the distance of reuse") {
    CHECK(gathers_per_step(zero3({"strategy.reuse_bytes=1", "strategy.prefetch_units=0"})) ==
          gathers_per_step(plain));  // only the head
    // Its last layer is used again after the head, twice: the embedding and the bias count each time.
    const uint64_t two_heads = 2 * (kHead + kEmbed);
    const auto reuse = [](uint64_t bytes) { return Options{"strategy.reuse_bytes=" + std::to_string(bytes)}; };
    CHECK(gathers_per_step(zero3(reuse(two_heads))) == gathers_per_step(plain));
    CHECK(gathers_per_step(zero3(reuse(two_heads + 1))) == gathers_per_step(plain) - 2);
    CHECK(gathers_per_step(zero3(reuse(1 << 30))) == kLayers * 2 + 1 + 1);
  }
  SECTION("by live bytes") {
    const Result all = zero3({"strategy.reuse_bytes=1000000"});
    const Result half = zero3({"strategy.reuse_bytes=1000000",
                               "strategy.max_live_bytes=" + std::to_string(kEmbed + kHead + 3 * (kLayer + kFrozen))});
    CHECK(gathers_per_step(half) > gathers_per_step(all));
    CHECK(gathers_per_step(half) < gathers_per_step(plain));
    CHECK(peak(half, "param") < peak(all, "param"));
    const Result none =
        zero3({"strategy.reuse_bytes=1000000", "strategy.prefetch_units=3", "strategy.max_live_bytes=1"});
    CHECK(gathers_per_step(none) == gathers_per_step(plain));  // the head is the very next unit
    CHECK(peak(none, "param") == peak(nothing_ahead, "param"));
  }
  SECTION("by DeepSpeed's 0 (nothing) and null (no limit)") {
    const Result ahead = zero3({"strategy.stage3_prefetch_bucket_size=0"});
    CHECK(gathers_per_step(ahead) == gathers_per_step(nothing_ahead));
    CHECK(peak(ahead, "param") == peak(nothing_ahead, "param"));
    const Result live = zero3({"strategy.stage3_max_live_parameters=0", "strategy.stage3_max_reuse_distance=1e6",
                               "strategy.prefetch_units=3"});
    CHECK(gathers_per_step(live) == gathers_per_step(plain));  // the head is the very next unit
    CHECK(peak(live, "param") == peak(nothing_ahead, "param"));
    const Result none =
        zero3({"strategy.prefetch_units=null", "strategy.prefetch_bytes=null", "strategy.max_live_bytes=null"});
    CHECK(gathers_per_step(none) == gathers_per_step(plain));
    CHECK(peak(none, "param") == peak(plain, "param"));
  }
}

TEST_CASE("small parameters stay gathered, in one reduction and one publish for all layers", "[options]") {
  const Result plain = zero3({}), result = zero3({"strategy.persistence_bytes=36"});
  // b1, gain and unused of all layers are one space, gathered once a step; frozen ones once for all.
  CHECK(counted(result, "comm.window_gathers") == kSteps * (kLayers * 2 + 1 + 3 + 1) + kLayers);
  CHECK(counted(result, "comm.reduce") == counted(plain, "comm.reduce") + kSteps);
  CHECK(counted(result, "comm.publish") == counted(plain, "comm.publish") + kSteps);
  // Everything but embedding and bias: nothing else moves.
  const Result layers = zero3({"strategy.persistence_bytes=180"});
  CHECK(counted(layers, "comm.window_gathers") == kSteps * (3 + 1) + kLayers);
}

TEST_CASE("the peak equals the plan to the byte for all limits, with many micro-batches", "[options]") {
  const Options& windows = GENERATE(kShared, kCopies);
  for (const int reuse : {1, 8000, 1000000}) {
    for (const int live : {3500, 6000, 9000}) {
      for (const int units : {0, 2}) {
        const Result result = run("zero3", 2,
                                  joined(windows, {"train.grad_accum_steps=6", "data.micro_batch=1", "model.repeat=1",
                                                   "train.recompute=2", "strategy.reuse_bytes=" + std::to_string(reuse),
                                                   "strategy.max_live_bytes=" + std::to_string(live),
                                                   "strategy.prefetch_units=" + std::to_string(units)}));
        check_plan_and_counts(result);
      }
    }
  }
}

TEST_CASE("max_live_bytes bounds what is gathered", "[options]") {
  for (const uint64_t live : {uint64_t{2 * 1536}, uint64_t{4 * 1536}}) {
    const Result result = run("zero3", 3,
                              joined(kShared, {"strategy.prefetch_units=8", "strategy.reuse_bytes=1000000",
                                               "strategy.max_live_bytes=" + std::to_string(live)}));
    const auto& memory = result.record.summary.at("ranks").at(2).at("memory_bytes").at("param");
    const uint64_t others = memory.at("peak").get<uint64_t>() - memory.at("now").get<uint64_t>();
    CHECK(others <= live);
    CHECK(others > live / 2);  // two thirds of a view are other ranks'
  }
}

TEST_CASE("a device with its own memory finds no unordered work", "[options][device]") {
  const Options sim = {
      "--device", "sim", "device.delay_us=30", "device.jitter_us=100", "comm.poison=true", "train.grad_accum_steps=2"};
  const Result reference = run("ddp", 2, {"train.grad_accum_steps=2"});
  const std::vector<std::pair<const char*, Options>> cases = {
      {"ddp", {"strategy.bucket_bytes=3000"}},
      {"zero1", {"strategy.reduce_bucket_bytes=3000", "strategy.overlap_publish=false"}},
      {"zero2", {"strategy.reduce_bucket_bytes=3000", "strategy.overlap_publish=false"}},
      {"zero2", {"strategy.overlap_comm=false"}},
      {"zero3", {"strategy.persistence_bytes=36", "strategy.reuse_bytes=100000", "strategy.max_live_bytes=5000"}},
  };
  for (const auto& [strategy, options] : cases) {
    const Result result = run(strategy, 2, joined(sim, options));
    check_same_bits(reference, result);
    check_plan_and_counts(result);
  }
}

namespace {

// The strategy section of the effective configuration.
nlohmann::json dry_run(const std::string& strategy, const Options& options) {
  Process process(joined({"--dry-run", "--strategy", strategy, "--model", toy_model()}, options));
  INFO(process.command());
  const int code = process.wait();
  INFO(process.err());
  REQUIRE(code == 0);
  return nlohmann::json::parse(process.out()).at("strategy");
}

std::string refusal(const std::string& strategy, const Options& options) {
  Process process(joined({"--strategy", strategy, "--model", toy_model(), "--nproc", "2", "train.steps=1"}, options));
  CHECK(process.wait() != 0);
  return process.err();
}

}  // namespace

TEST_CASE("the names and values of PyTorch and DeepSpeed are accepted, in their units", "[options]") {
  CHECK(dry_run("ddp", {"strategy.bucket_cap_mb=25"}).at("bucket_bytes") == 25 << 20);
  const auto zero1 = dry_run("zero1", {"strategy.reduce_bucket_size=5e8", "strategy.allgather_bucket_size=5e8",
                                       "strategy.overlap_comm=false", "strategy.reduce_scatter=true"});
  CHECK(zero1.at("reduce_bucket_bytes") == 2000000000);
  for (const char* name : {"allgather_bucket_bytes", "overlap_comm", "reduce_scatter"}) CHECK(!zero1.contains(name));
  CHECK(zero1.at("overlap_publish") == true);
  const auto zero2 = dry_run("zero2", {"strategy.reduce_bucket_size=1000", "strategy.overlap_comm=false",
                                       "strategy.round_robin_gradients=true", "strategy.allgather_partitions=true"});
  CHECK(zero2.at("reduce_bucket_bytes") == 4000);
  CHECK(zero2.at("overlap_comm") == false);
  CHECK(zero2.at("overlap_publish") == true);
  const auto zero3 =
      dry_run("zero3", {"strategy.stage3_prefetch_bucket_size=5e7", "strategy.stage3_param_persistence_threshold=1e5",
                        "strategy.stage3_max_live_parameters=1e9", "strategy.stage3_max_reuse_distance=1e9"});
  CHECK(zero3.at("prefetch_bytes") == 200000000);
  CHECK(zero3.at("persistence_bytes") == 400000);
  CHECK(zero3.at("max_live_bytes") == 4000000000);
  CHECK(zero3.at("reuse_bytes") == 4000000000);
  const auto fsdp = dry_run(
      "fsdp", {"strategy.sharding_strategy=SHARD_GRAD_OP", "strategy.backward_prefetch=NO_PREFETCH",
               "strategy.auto_wrap_policy=SIZE_BASED_WRAP", "strategy.min_num_params=1e6",
               "strategy.cpu_offload.offload_params=true", "strategy.mixed_precision.buffer_dtype=torch.float32"});
  CHECK(fsdp.at("sharding_strategy") == "shard_grad_op");
  CHECK(fsdp.at("backward_prefetch") == "none");
  CHECK(fsdp.at("auto_wrap_policy") == "size");
  CHECK(fsdp.at("min_num_params") == 1000000);
  CHECK(fsdp.at("cpu_offload") == true);
  CHECK(!fsdp.contains("mixed_precision"));
}

TEST_CASE("sections of DeepSpeed's are accepted, and options without effect give a warning", "[options]") {
  const TempFolder folder;
  const std::string file = folder.file("stage3.json");
  std::ofstream(file) << R"({"strategy": {"stage": 3, "contiguous_gradients": true, "overlap_comm": true,
    "reduce_scatter": true, "reduce_bucket_size": 5e8, "allgather_partitions": true, "allgather_bucket_size": 5e8,
    "stage3_prefetch_bucket_size": 1e7, "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
    "sub_group_size": 0, "round_robin_gradients": true, "stage3_gather_16bit_weights_on_model_save": true,
    "offload_optimizer": {"device": "cpu", "pin_memory": true, "ratio": 0.3, "fast_init": false},
    "offload_param": {"device": "none", "pin_memory": false}}})";
  const Result reference = run("zero3", 2, kShared),
               result = run("zero3_offload", 2, joined(kShared, {"--config", file}));
  check_same_bits(reference, result);
  for (const char* key : {"reduce_bucket_size=", "allgather_bucket_size=", "sub_group_size=", "fast_init=false",
                          "round_robin_gradients=true", "stage3_gather_16bit_weights_on_model_save=true"})
    CHECK_THAT(result.err, Catch::Contains(key));
  CHECK_THAT(result.err, !Catch::Contains("contiguous_gradients"));
  const auto devices = [](const Options& words) {
    const auto taken = dry_run("zero3_offload", words);
    return std::pair{taken.at("offload_optimizer").at("device").get<std::string>(),
                     taken.at("offload_param").at("device").get<std::string>()};
  };
  CHECK(devices({}) == std::pair<std::string, std::string>{"cpu", "none"});
  CHECK(devices({"strategy.offload_optimizer=nvme", "strategy.offload_param=cpu"}) ==
        std::pair<std::string, std::string>{"nvme", "cpu"});
  CHECK(devices({"strategy.offload_optimizer=null", "strategy.offload_param=null"}) ==
        std::pair<std::string, std::string>{"none", "none"});
  for (const char* strategy : {"zero2", "zero3", "zero3_offload"})
    CHECK(dry_run(strategy, {"strategy.overlap_comm=null"}).at("overlap_comm") == true);
  CHECK(!dry_run("zero1", {"strategy.overlap_comm=null"}).contains("overlap_comm"));
  CHECK_THAT(refusal("zero3_offload", {"strategy.offload_optimizer.pin_memory=false"}),
             Catch::Contains("strategy.offload_optimizer.pin_memory=false"));
  for (const char* strategy : {"zero1", "zero2", "zero3"}) {
    const auto taken = dry_run(strategy, {"strategy.offload_optimizer=null", "strategy.offload_param.device=none"});
    CHECK(taken.at("offload_optimizer").at("device") == "none");
    CHECK(!taken.contains("offload_param"));
    const auto offloads =
        dry_run(strategy, {"strategy.offload_optimizer.device=cpu", "strategy.offload_optimizer.buffer_count=4",
                           "strategy.offload_optimizer.nvme_path=/tmp"});
    CHECK(offloads.at("offload_optimizer").at("device") == "cpu");
    CHECK(offloads.at("buffer_count") == 4);
    CHECK(offloads.at("nvme_path") == "/tmp");
    CHECK_THAT(refusal(strategy, {"strategy.offload_param.device=cpu"}), Catch::Contains("zero3_offload"));
    CHECK_THAT(refusal(strategy, {"strategy.offload_optimizer=cpu", "strategy.offload_optimizer.pin_memory=false"}),
               Catch::Contains("strategy.offload_optimizer.pin_memory=false"));
  }
  CHECK_THAT(refusal("zero2", {"strategy.stage=3"}),
             Catch::Contains("strategy.stage = 3") && Catch::Contains("one of 2"));
}

TEST_CASE("zero1 warns that overlap_comm has no effect", "[options]") {
  const Result plain = run("zero1", 2, kCopies),
               without = run("zero1", 2, joined(kCopies, {"strategy.overlap_comm=false"}));
  check_same_bits(plain, without);
  CHECK(without.record.summary.at("counters") == plain.record.summary.at("counters"));
  CHECK_THAT(without.err, Catch::Contains("overlap_comm=false changes nothing"));
  CHECK_THAT(plain.err, !Catch::Contains("overlap_comm"));
}

TEST_CASE("impossible options are refused, and options without effect give one warning", "[options]") {
  const char* strategy = GENERATE("zero1", "zero2");
  CHECK_THAT(refusal(strategy, {"strategy.reduce_bucket_size=1000", "strategy.allgather_bucket_size=2000"}),
             Catch::Contains("allgather_bucket_bytes = 8000") && Catch::Contains("reduce_bucket_bytes = 4000"));
  CHECK_THAT(refusal(strategy, {"strategy.reduce_scatter=false"}), Catch::Contains("reduce_scatter"));
  CHECK_THAT(refusal(strategy, {"strategy.reduce_bucket_size=-1"}), Catch::Contains("reduce_bucket_size"));
  const auto times_said = [](const Result& result, const std::string& words) {
    int times = 0;
    for (size_t at = result.err.find(words); at != std::string::npos; at = result.err.find(words, at + 1)) ++times;
    return times;
  };
  const Result plain = run(strategy, 2, kShared);
  const Result result =
      run(strategy, 2, joined(kShared, {"strategy.contiguous_gradients=false", "strategy.round_robin_gradients=true"}));
  check_same_bits(plain, result);
  CHECK(times_said(plain, "changes nothing") == 0);
  CHECK(times_said(result, "contiguous_gradients=false changes nothing") == 1);
  CHECK(times_said(result, "round_robin_gradients=true changes nothing") == 1);
}
