// SPDX-License-Identifier: Apache-2.0
//
// Numerics of the host: dtype of the sum over ranks, clipping by value, uneven batches, programs in turn, buffers. Each
// gives the same bits under every strategy, and has the documented effect.
#include "equivalence/variants.hpp"

#include <cstring>
#include <fstream>
#include <map>

#include "fixtures/harness/built.hpp"

using namespace ddhost::test;

namespace {

constexpr int kSteps = 12;

// Checks that every selected variant gives the bits of the reference and uses the planned memory. Returns the
// reference.
Result check_everywhere(int world, const Options& options) {
  const Result reference = run(kReference, world, options, kSteps);
  for (const Variant& way : taken_variants()) {
    const Result other = run(way, world, options, kSteps);
    check_same_bits(reference, other);
    check_plan(other);
  }
  return reference;
}

}  // namespace

// ---- The sum over ranks
// ----------------------------------------------------------------------------------------------

TEST_CASE("gradients rounded to bf16 before they are summed: the same bits under every strategy", "[equivalence]") {
  const int world = GENERATE(1, 3);
  const Options options = GENERATE(Options{}, Options{"train.grad_accum_steps=3", "train.reduce_order=rank_first"},
                                   Options{"train.grad_accum_steps=3", "train.reduce_order=micro_first"});
  const Result bf16 = check_everywhere(world, joined(options, {"precision.reduce_dtype=bf16"})),
               fp32 = run(kReference, world, options, kSteps);
  CHECK(bf16.grad_norm != fp32.grad_norm);
  // Three times the largest measured differences: 4.8e-6 of a loss, 2.1e-4 of the decrease of the loss, which is at
  // least 0.026.
  CHECK(loss_distance(bf16, fp32) < 1.5e-5);
  CHECK(fall_distance(bf16, fp32) < 6.3e-4);
}

TEST_CASE("shards in nodes and replicas across them round each rank's gradient once", "[equivalence]") {
  const Options options = {"precision.reduce_dtype=bf16", "train.reduce_block=2", "data.micro_batch=3",
                           "train.grad_accum_steps=2"};
  const Result reference = run(kReference, 4, options);
  for (const char* windows : {"comm.windows=auto", "comm.windows=copy"}) {
    const Variant hybrid = {
        "fsdp", "loop", {"strategy.sharding_strategy=hybrid_shard", "strategy.shard_size=2", windows}};
    check_same_bits(reference, run(hybrid, 4, options));
  }
}

TEST_CASE("the dtype options of strategies set the dtypes of the run", "[equivalence]") {
  const Result reference = run(kReference, 2, {"precision.compute=bf16", "precision.reduce_dtype=bf16"}, kSteps);
  const Variant fsdp = {
      "fsdp",
      "loop",
      {"strategy.mixed_precision.param_dtype=torch.bfloat16", "strategy.mixed_precision.reduce_dtype=bfloat16",
       "strategy.mixed_precision.buffer_dtype=float32"}};
  check_same_bits(reference, run(fsdp, 2, {}, kSteps));
  const Variant ddp = {"ddp", "loop", {"strategy.reduce_dtype=bf16", "precision.compute=bf16"}};
  check_same_bits(reference, run(ddp, 2, {}, kSteps));

  const Result low_buffers = attempt({fsdp, 1, {"strategy.mixed_precision.buffer_dtype=bf16"}});
  CHECK(low_buffers.code != 0);
  CHECK_THAT(low_buffers.err,
             Catch::Contains("strategy.mixed_precision.buffer_dtype") && Catch::Contains("one of fp32"));
  const Result both = attempt({ddp, 1, {"precision.reduce_dtype=fp32"}});
  CHECK(both.code != 0);
  CHECK_THAT(both.err, Catch::Contains("leave one of them out"));
}

// ---- Clipping by value ------------------------------------------------------------------------------------------------

TEST_CASE("gradients clipped by value: the same bits under every strategy", "[equivalence]") {
  const char* const optimizer = GENERATE("adamw", "sgd", "lamb", "muon");
  const Options options = {"--optimizer", optimizer, kManyBlocks, "model.nan_at_step=5"};
  const Result some = check_everywhere(2, joined(options, {"train.clip_value=0.003"}));
  const Result none = run(kReference, 2, joined(options, {"train.clip_norm=0"}), kSteps);
  CHECK((some.weights != none.weights));
  CHECK(some.record.steps[0].at("grad_norm") == none.record.steps[0].at("grad_norm"));  // from before the clipping
  CHECK((run(kReference, 2, joined(options, {"train.clip_value=1e9"}), kSteps).weights == none.weights));
}

TEST_CASE("clipping by value and by norm exclude each other", "[equivalence]") {
  const Result both = attempt({kReference, 1, {"train.clip_value=0.1", "train.clip_norm=1"}});
  CHECK(both.code != 0);
  CHECK_THAT(both.err, Catch::Contains("train.clip_value=0.1 and train.clip_norm=1 exclude each other"));
}

// ---- Uneven batches ----------------------------------------------------------------------------------------------------

TEST_CASE("ranks with fewer samples or none: the same bits under every strategy", "[equivalence]") {
  // An epoch has 20 samples and a step takes 18, so the last step has 2, all on rank 0.
  const Options options =
      GENERATE(Options{"data.micro_batch=6"}, Options{"data.micro_batch=3", "train.grad_accum_steps=2"},
               Options{"data.micro_batch=3", "train.grad_accum_steps=2", "train.reduce_order=micro_first"},
               Options{"data.micro_batch=6", "train.recompute=1", "precision.compute=bf16"});
  check_everywhere(
      3, joined(options, {"model.samples=20", "data.drop_last=false", "model.ignore_every=3", "train.eval_every=5"}));
}

TEST_CASE("the mean is over the counted targets, for any distribution over ranks and micro-batches", "[equivalence]") {
  const Options shared = {"model.samples=20",   "data.drop_last=false", "model.ignore_every=3",
                          "train.eval_every=4", "--optimizer",          "sgd"};
  const Result one = run(kReference, 1, joined(shared, {"data.micro_batch=12"}));
  const Result three = run(kReference, 3, joined(shared, {"data.micro_batch=4"}));
  const Result accumulated = run(kReference, 2, joined(shared, {"data.micro_batch=3", "train.grad_accum_steps=2"}));
  for (const Result* other : {&three, &accumulated}) {
    for (size_t i = 0; i < one.record.steps.size(); ++i) {
      // Sums in another order: some ten fp32 roundings a step.
      for (const char* column : {"loss", "grad_norm"})
        CHECK(other->record.steps[i].at(column).get<double>() ==
              Approx(one.record.steps[i].at(column).get<double>()).epsilon(1e-5));
    }
  }
}

TEST_CASE("a run that would give empty batches to a model without support for them is refused before training",
          "[equivalence]") {
  const std::string model = test_plugin("toy_full");
  const auto error_of = [&](const char* world) {
    const TempFolder folder;
    Process process({"--model", model, "--nproc", world, "run.dir=" + folder.file("run"), "train.steps=6",
                     "run.quiet=true", "model.samples=20", "data.drop_last=false", "data.micro_batch=6"});
    return process.wait() == 0 ? "" : process.err();
  };
  CHECK_THAT(error_of("3"), Catch::Contains("without samples") && Catch::Contains("data.drop_last=true"));
  CHECK(error_of("2").empty());  // 12 and 8
}

// ---- Programs in turn --------------------------------------------------------------------------------------------------

namespace {

// Values of each tensor of a safetensors file, as bytes.
std::map<std::string, std::string> tensors_of(const std::string& file) {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  const auto header = nlohmann::json::parse(file.substr(8, header_bytes));
  std::map<std::string, std::string> out;
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    const uint64_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
    out[name] = file.substr(8 + header_bytes + begin, end - begin);
  }
  return out;
}

bool second_trains(const std::string& name) { return name == "embedding" || name == "bias" || name.ends_with(".gain"); }

}  // namespace

TEST_CASE("two programs in turn, with their own masks and sample orders: the same bits under every strategy",
          "[equivalence]") {
  const Options options =
      GENERATE(Options{}, Options{"train.grad_accum_steps=3", "data.micro_batch=3", "train.recompute=2"},
               Options{"train.grad_accum_steps=2", "train.reduce_order=micro_first", "model.nan_at_step=5"},
               Options{"--optimizer", "lamb", "precision.compute=bf16"}, Options{"--optimizer", "muon"},
               Options{"train.programs=[\"train\", \"second\", \"second\"]", "data.drop_last=false", "model.samples=50",
                       "data.micro_batch=7"});
  const Result result = check_everywhere(2, joined(options, {"model.programs=2"}));
  CHECK(result.record.steps[0].at("program") == "train");
  CHECK(result.record.steps[1].at("program") == "second");
}

TEST_CASE("parameters outside of a program's mask keep their initial values, bit for bit, under every strategy",
          "[equivalence]") {
  const Options options = {"model.programs=2", "train.programs=[\"second\"]", "optimizer.weight_decay=0.1",
                           "train.recompute=1"};
  const auto first = tensors_of(run(kReference, 1, options, 0).weights);
  const Result result = check_everywhere(3, options);
  CHECK_FALSE(result.record.steps[0].contains("program"));
  for (const auto& [name, values] : tensors_of(result.weights)) {
    INFO(name);
    CHECK((values == first.at(name)) != second_trains(name));
  }
}

TEST_CASE("a program with two turns makes two steps", "[equivalence]") {
  const Result turns = run(kReference, 2, {"model.programs=2", "train.programs=[\"second\"]"}, kSteps);
  const Result same = run(kReference, 2, {"model.programs=2", "train.programs=[\"second\", \"second\"]"}, kSteps);
  CHECK((turns.weights == same.weights));
  CHECK(turns.loss == same.loss);
}

TEST_CASE("an unknown program is refused with the list of the model's programs", "[equivalence]") {
  const Result refused = attempt({kReference, 1, {"model.programs=2", "train.programs=[\"third\"]"}});
  CHECK(refused.code != 0);
  CHECK_THAT(refused.err, Catch::Contains("\"third\"") && Catch::Contains("it has train, second"));
}

// ---- Buffers -----------------------------------------------------------------------------------------------------------

namespace {

int64_t forwards_of(const Result& result) {
  int64_t forwards = 0;
  std::memcpy(&forwards, tensors_of(result.weights).at("forwards").data(), sizeof forwards);
  return forwards;
}

}  // namespace

TEST_CASE(
    "folded buffers include every rank's micro-batches under every strategy, and recomputation does not change them",
    "[equivalence]") {
  const int world = GENERATE(1, 3);
  const Options options = {"model.buffers=true", "train.eval_every=4", "train.eval_batches=2",
                           "train.grad_accum_steps=2"};
  const Result reference = run(kReference, world, options, kSteps);
  CHECK(forwards_of(reference) == 24 * world);
  for (const Variant& way : taken_variants()) {
    const Result other = run(way, world, joined(options, {"train.recompute=1"}), kSteps);
    INFO(other.command);
    CHECK((other.weights == reference.weights));
    CHECK(other.evaluations == reference.evaluations);
  }
}

TEST_CASE("a skipped step still folds its buffers", "[equivalence]") {
  CHECK(forwards_of(run(kReference, 2, {"model.buffers=true", "model.nan_at_step=5"}, kSteps)) == 2 * kSteps);
}

TEST_CASE("micro-batches without samples contribute nothing to folded buffers", "[equivalence]") {
  // An epoch has 20 samples. One rank takes 12 and then 8, as 6 and 2; three ranks take 18 and then 2, all of them rank 0's.
  const Options options = {"model.buffers=true", "model.samples=20", "data.drop_last=false", "data.micro_batch=6"};
  const Result one = run(kReference, 1, joined(options, {"train.grad_accum_steps=2"}), 2);
  const Result three = run(kReference, 3, options, 2);
  CHECK(forwards_of(one) == 4);
  CHECK(forwards_of(three) == 4);
}

TEST_CASE("the file and evaluations have rank 0's values of buffers that each rank changes, under every strategy",
          "[equivalence]") {
  const int world = GENERATE(1, 3);
  const Options options = {"model.buffers=true", "model.buffer_sync=step", "train.eval_every=4", "train.eval_batches=2",
                           "train.grad_accum_steps=2"};
  const Result reference = run(kReference, world, options, kSteps);
  CHECK(forwards_of(reference) == 24);
  for (const Variant& way : taken_variants()) {
    const Result other = run(way, world, joined(options, {"train.recompute=1"}), kSteps);
    INFO(other.command);
    CHECK((other.weights == reference.weights));
    CHECK(other.evaluations == reference.evaluations);
  }
}

TEST_CASE("without train.sync_buffers each rank evaluates with its own buffers, unless they are folded",
          "[equivalence]") {
  const bool folded = GENERATE(true, false);
  const Options options = {"model.buffers=true", folded ? "model.buffer_sync=fold" : "model.buffer_sync=step",
                           "train.eval_every=4"};
  const Result synced = run(kReference, 2, options, kSteps),
               apart = run(kReference, 2, joined(options, {"train.sync_buffers=false"}), kSteps);
  REQUIRE(synced.record.evaluations.size() == 3);
  CHECK((synced.evaluations == apart.evaluations) == folded);
  CHECK((synced.weights == apart.weights));  // rank 0 never gets another rank's values
}

TEST_CASE("buffers are read from the file of train.init_from", "[equivalence]") {
  const Result trained = run(kReference, 2, {"model.buffers=true"});
  const TempFolder folder;
  std::ofstream(folder.file("first.safetensors"), std::ios::binary) << trained.weights;
  const std::string from = "train.init_from=" + folder.file("first.safetensors");
  CHECK((run(kZero3, 3, {"model.buffers=true", from}, 0).weights == trained.weights));
  const Result without = run(kReference, 1, {}, 0);
  std::ofstream(folder.file("first.safetensors"), std::ios::binary) << without.weights;
  const Result refused = attempt({kReference, 1, {"model.buffers=true", from}});
  CHECK(refused.code != 0);
  CHECK_THAT(refused.err, Catch::Contains("'running_mean'"));
}
