// SPDX-License-Identifier: Apache-2.0
//
// Reported values do not depend on the number of ranks: at one global batch and micro-batch size, the loss, every
// metric, the evaluations and the buffers of a model have the same bits for every number of ranks.
#include <cmath>

#include "equivalence/variants.hpp"

using namespace ddhost::test;

namespace {

// A step has 24 micro-batches over all ranks, of 2 samples each.
constexpr int kGlobal = 24;
constexpr int kWorlds[] = {1, 2, 3, 4, 6, 8, 12};
constexpr int kSteps = 3;

Result run_in(const Variant& way, int world, const Options& options) {
  Options all = {"data.micro_batch=2", "train.grad_accum_steps=" + std::to_string(kGlobal / world),
                 "train.eval_every=1", "train.eval_batches=7",
                 "model.buffers=true", "model.ignore_every=3"};
  return run(way, world, joined(all, options), kSteps);
}

// The file of weights also has the buffers.
void check_same_reports(const Result& reference, const Result& other) {
  INFO("reference: " << reference.command << "\nother:     " << other.command);
  CHECK(other.metrics == reference.metrics);
  CHECK(other.evaluations == reference.evaluations);
  CHECK((other.weights == reference.weights));
  CHECK(other.grad_norm == reference.grad_norm);
}

void check_worlds(const Variant& way, const Options& options) {
  const Result reference = run_in(kReference, 1, options);
  REQUIRE(reference.record.evaluations.size() >= kSteps);
  for (const int world : kWorlds) check_same_reports(reference, run_in(way, world, options));
}

}  // namespace

TEST_CASE("metrics, evaluations and buffers have the same bits for every ranks x accumulation", "[equivalence]") {
  check_worlds(kReference, {"model.metrics=10"});
}

TEST_CASE("derived metrics, and batches that are not full, have the same bits for every ranks x accumulation",
          "[equivalence]") {
  // An epoch has 90 samples: a step of 48, and one of 42.
  check_worlds({"zero3", "loop", {}}, {"model.derived=true", "model.samples=90", "data.drop_last=false"});
}

TEST_CASE("two programs in turn, each with its own evaluation, have the same bits for every ranks x accumulation",
          "[equivalence]") {
  check_worlds({"zero1", "shm", {}}, {"model.metrics=2", "model.programs=2", "model.evals=2"});
}

TEST_CASE("every strategy reports the same for every ranks x accumulation", "[.worlds]") {
  const Options options = GENERATE(Options{"model.metrics=10"}, Options{"model.derived=true", "precision.compute=bf16"},
                                   Options{"model.metrics=3", "train.recompute=1", "comm.windows=copy"});
  for (const std::string& strategy : taken_strategies()) {
    for (const char* comm : {"loop", "shm"}) check_worlds({strategy, comm, {}}, options);
  }
}

TEST_CASE("each training program is evaluated once by the program that it names, and rows name the program",
          "[equivalence]") {
  const Options options = {"model.programs=2", "train.eval_every=2", "train.eval_batches=3", "data.micro_batch=2",
                           "train.programs=[\"train\", \"second\", \"second\"]"};
  const Result one = run(kReference, 2, options, 4);
  REQUIRE(one.record.evaluations.size() == 2);
  for (const nlohmann::json& row : one.record.evaluations) CHECK(row.at("program") == "eval");
  const Result two = run(kReference, 2, joined(options, {"model.evals=2"}), 4);
  REQUIRE(two.record.evaluations.size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    const nlohmann::json& row = two.record.evaluations[i];
    CHECK(row.at("step") == (i < 2 ? 2 : 4));
    CHECK(row.at("program") == (i % 2 == 0 ? "eval" : "second eval"));
    if (i % 2 == 0) CHECK(row == one.record.evaluations[i / 2]);
  }
  CHECK(two.record.evaluations[0].at("val_loss") != two.record.evaluations[1].at("val_loss"));  // other samples
}

TEST_CASE("rows have all values that a program reports, under their names", "[equivalence]") {
  const Options options = {"train.eval_every=1", "data.micro_batch=5"};
  const Result plain = run(kReference, 2, joined(options, {"model.metrics=12"}), 2);
  for (const nlohmann::json& row : plain.record.steps) {
    for (int i = 1; i <= 12; ++i) CHECK(row.at("p" + std::to_string(i)).get<double>() > 0);
  }
  for (const nlohmann::json& row : plain.record.evaluations) {
    CHECK(row.at("val_loss").get<double>() > 0);
    for (int i = 1; i <= 12; ++i) CHECK(row.at("val_p" + std::to_string(i)).get<double>() > 0);
    CHECK_FALSE(row.contains("program"));
  }
  const Result derived = run(kReference, 2, joined(options, {"model.derived=true"}), 2);
  for (const nlohmann::json& row : derived.record.steps) {
    CHECK(row.at("perplexity").get<double>() == std::exp(row.at("loss").get<double>()));
    CHECK(row.contains("f1"));
    CHECK_FALSE(row.contains("tp"));
  }
  for (const nlohmann::json& row : derived.record.evaluations)
    CHECK(row.at("val_perplexity").get<double>() == std::exp(row.at("val_loss").get<double>()));
}

TEST_CASE("memory for the contributions to folded buffers is counted", "[equivalence]") {
  const int world = GENERATE(1, 2);
  const Options options = {"model.width=2000", "model.hidden=1", "model.layers=1", "train.grad_accum_steps=3"};
  const Result without = run(kReference, world, options, 2),
               with = run(kReference, world, joined(options, {"model.buffers=true"}), 2);
  // A micro-batch's row has 2000 floats and a count, each after a flag of 8 bytes. Memory: this rank's rows, those of
  // all ranks, and the largest buffer.
  const auto row = static_cast<uint64_t>(8 + 2000 * 4 + 8 + 8), ranks = static_cast<uint64_t>(world);
  CHECK(peak_bytes(with, 0, "comm") - peak_bytes(without, 0, "comm") == 3 * row * (1 + ranks) + 2000 * 4);
}

TEST_CASE("an evaluation with data.drop_last=false counts each sample once, for any number of ranks", "[equivalence]") {
  // 23 samples give five micro-batches of 4 and one of 3, although 20 are requested.
  const Options options = {"train.eval_every=1",   "data.micro_batch=4", "model.eval_samples=23",
                           "data.drop_last=false", "optimizer.lr=0",     "optimizer.weight_decay=0"};
  const Result one = run(kReference, 1, options, 1);
  const Result whole = run(kReference, 1, joined(options, {"data.micro_batch=23"}), 1);
  const auto val_loss = [](const Result& r) { return r.record.evaluations.at(0).at("val_loss").get<double>(); };
  CHECK(val_loss(one) == Approx(val_loss(whole)).epsilon(1e-12));
  for (const int world : {2, 3, 4, 8}) CHECK(run(kReference, world, options, 1).evaluations == one.evaluations);
}

TEST_CASE("the summary shows the speed by the model's estimate, and estimated and measured activations",
          "[equivalence]") {
  const Result result = run(kReference, 2, {"data.micro_batch=3", "train.grad_accum_steps=2"}, 4);
  const nlohmann::json& summary = result.record.summary;
  const nlohmann::json& estimate = summary.at("estimates").at(0);
  CHECK(estimate.at("program") == "train");
  // Three layers of 5 x 9 twice, and the head of 5 x 31; two operations for each product, three samples.
  const double forward = 3 * 2 * (3 * 2 * 45 + 155);
  CHECK(estimate.at("forward_flops") == forward);
  CHECK(estimate.at("backward_flops") == 2 * forward);
  const double seconds = summary.at("mean_step_ms").get<double>() / 1e3;
  CHECK(estimate.at("flops_per_s").get<double>() == Approx(2 * 2 * 3 * forward / seconds));  // 2 ranks of 2
  CHECK(estimate.at("flops_per_s_of_a_rank").get<double>() == Approx(2 * 3 * forward / seconds));
  const double peak = estimate.at("peak_flops_per_s_of_a_rank").get<double>();
  CHECK(peak > 1e9);  // slower than any processor that runs this
  CHECK(estimate.at("mfu").get<double>() == Approx(2 * 3 * forward / seconds / peak));
  CHECK(estimate.at("peak_type") == "fp32");
  CHECK(estimate.at("activation_bytes") == summary.at("ranks").at(0).at("memory_bytes").at("act").at("peak"));
}
