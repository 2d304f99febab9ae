// SPDX-License-Identifier: Apache-2.0
//
// Metrics and buffers: the fold in global order has the same bits for every ranks x accumulation, and what a model may
// hand over is checked before it trains.
#include <catch2/catch.hpp>
#include <limits>
#include <random>

#include "ddh/sdk/model.hpp"
#include "engine/record/reports.hpp"
#include "engine/services/optim/micro_metrics.hpp"
#include "engine/state/buffers.hpp"
#include "fixtures/harness/throws.hpp"

using namespace ddhost;
using namespace ddhost::test;

namespace {

constexpr uint64_t kGlobal = 24;  // micro-batches of a step
constexpr uint32_t kMetrics = 11;

// Values of many magnitudes, so that another order of the sums gives other bits.
std::vector<double> global_values() {
  std::mt19937 random(5);
  std::vector<double> out;
  for (uint64_t i = 0; i < kGlobal * kMetrics; ++i) {
    const int exponent = static_cast<int>(random() % 40) - 60;  // drawn first: a call's arguments have no order
    out.push_back(std::ldexp(static_cast<double>(random()), exponent));
  }
  return out;
}

// The fold of a world: micro-batch m of rank r has the place m * world + r.
FoldedMetrics folded(uint64_t world, const std::vector<double>& values) {
  std::vector<double> all;
  MicroMetrics mine;
  for (uint64_t r = 0; r < world; ++r) {
    mine.begin(kMetrics, kGlobal / world);
    for (uint64_t m = 0; m < kGlobal / world; ++m) {
      const double* at = &values[(m * world + r) * kMetrics];
      std::copy(at, at + kMetrics, mine.sums(m));
      std::fill_n(mine.counts(m), kMetrics, 3.0);
      mine.items(m) = 7;
    }
    all.insert(all.end(), mine.rows().begin(), mine.rows().end());
  }
  FoldedMetrics out;
  mine.fold(all.data(), mine.rows().size(), world, out);
  return out;
}

// A model of one unit whose programs and buffers a test fills in; a C table whose optional slots it takes away.
struct Outputs {
  ddh::ModelDesc desc{"outputs"};
  ddh_model_api table{};
  float values[4] = {};
  int64_t count = 0;
  Outputs() {
    desc.add_unit("unit", {desc.add_param(0, "w", {1}, {})});
    table.derive = [](ddh_inst*, int32_t, const double* sums, const double* counts, double* out, ddh_err*) noexcept {
      out[0] = 2 * sums[0];
      out[1] = sums[1] + counts[1];
      return ddh_rc{DDH_OK};
    };
    table.contribution = [](ddh_inst*, uint32_t, int32_t, int32_t, void*, int32_t*, ddh_err*) noexcept {
      return ddh_rc{DDH_OK};
    };
  }
  void add(int32_t kind, std::vector<std::string> metrics, std::vector<std::string> reported = {}) {
    desc.add_program({kind, "program", {0}, std::move(metrics), 10, "samples", {}, 0, {}, {}, std::move(reported)});
  }
  std::string refusal() {
    return sentence_of([&] { check_outputs(desc.get(), table); });
  }
};

std::string refusal_of_names(int32_t kind, std::vector<std::string> metrics, std::vector<std::string> reported = {}) {
  Outputs model;
  model.add(kind, std::move(metrics), std::move(reported));
  return model.refusal();
}

std::string refusal_of_buffer(int32_t dtype, int32_t sync, double decay) {
  Outputs model;
  model.add(DDH_PROGRAM_TRAIN, {"loss"});
  model.desc.add_buffer("running", {1}, dtype, &model.count, sync, decay);
  return model.refusal();
}

}  // namespace

TEST_CASE("metrics have the same bits for every number of ranks that share the global micro-batches", "[metrics]") {
  const std::vector<double> values = global_values();
  const FoldedMetrics one = folded(1, values);
  double by_hand = 0, by_rank = 0;
  for (uint64_t g = 0; g < kGlobal; ++g) by_hand += values[g * kMetrics];
  for (uint64_t r = 0; r < 2; ++r) {
    double mine = 0;
    for (uint64_t g = r; g < kGlobal; g += 2) mine += values[g * kMetrics];
    by_rank += mine;
  }
  CHECK(one.sums[0] == by_hand);
  CHECK(by_rank != by_hand);  // these values can tell orders apart
  CHECK(one.counts == std::vector<double>(kMetrics, 3.0 * kGlobal));
  for (const uint64_t world : {2, 3, 4, 6, 8, 12, 24}) {
    INFO(world << " ranks");
    const FoldedMetrics other = folded(world, values);
    CHECK(other.sums == one.sums);
    CHECK(other.counts == one.counts);
    CHECK(other.items == one.items);
  }
}

TEST_CASE("a program without derived values reports sum / count, one with them the values of the model", "[metrics]") {
  Outputs model;
  model.add(DDH_PROGRAM_TRAIN, {"loss", "hits"});
  model.add(DDH_PROGRAM_EVAL, {"loss", "hits"}, {"loss", "score"});  // of the same name, which report doesn't mind
  const FoldedMetrics folded_metrics{{6, 10}, {3, 4}, 0};
  Reported reported;
  const std::vector<ReportedValue>& values = reported.values;
  report(PluginCaller("the model"), nullptr, model.table, model.desc.get(), 0, folded_metrics, reported);
  REQUIRE(values.size() == 2);
  CHECK((values[0].name == "loss" && values[0].value == 2));
  CHECK((values[1].name == "hits" && values[1].value == 2.5));
  report(PluginCaller("the model"), nullptr, model.table, model.desc.get(), 1, folded_metrics, reported);
  REQUIRE(values.size() == 2);
  CHECK((values[0].name == "loss" && values[0].value == 12));
  CHECK((values[1].name == "score" && values[1].value == 14));
}

TEST_CASE("invalid names of metrics and reported values are refused", "[metrics]") {
  const int32_t train = DDH_PROGRAM_TRAIN, eval = DDH_PROGRAM_EVAL;
  CHECK(refusal_of_names(train, {"loss", "hits"}).empty());
  CHECK(refusal_of_names(eval, {"recall"}).empty());
  CHECK(refusal_of_names(eval, {"tp", "fp"}, {"f1"}).empty());
  CHECK_THAT(refusal_of_names(train, {"loss", "hits", "hits"}), Catch::Contains("metric 'hits' twice"));
  CHECK_THAT(refusal_of_names(eval, {"tp"}, {"f1", "f1"}), Catch::Contains("reported value 'f1' twice"));
  CHECK_THAT(refusal_of_names(train, {"loss", ""}), Catch::Contains("metric 1 of program 'program' has no name"));
  CHECK_THAT(refusal_of_names(train, {}), Catch::Contains("has no metric"));
  CHECK_THAT(refusal_of_names(train, {"hits", "loss"}), Catch::Contains("metric 0") && Catch::Contains("'hits'"));
  CHECK_THAT(refusal_of_names(eval, {"hits", "loss"}), Catch::Contains("put it first"));
  CHECK_THAT(refusal_of_names(train, {"loss"}, {"f1", "loss"}), Catch::Contains("'f1' first"));
  for (const char* name : {"step", "lr", "grad_norm", "step_ms", "skipped", "loss_scale", "program", "summary",
                           "tokens_per_s", "val_loss"})
    CHECK_THAT(refusal_of_names(train, {"loss", name}),
               Catch::Contains("reports '" + std::string(name) + "'") && Catch::Contains("the rows of monitors"));
  CHECK(refusal_of_names(train, {"loss", "lr"}, {"loss"}).empty());  // it is not shown
}

TEST_CASE("a training program that names no eval program of the model, and two programs of one name, are refused",
          "[metrics]") {
  const auto refusal_of = [](const char* other_name, int32_t other_kind) {
    Outputs model;
    model.desc.add_program({DDH_PROGRAM_TRAIN, "train", {0}, {"loss"}, 10, "samples", {}, 0, {}, "held out"});
    model.desc.add_program({other_kind, other_name, {0}, {"loss"}, 10, "samples"});
    return model.refusal();
  };
  CHECK(refusal_of("held out", DDH_PROGRAM_EVAL).empty());
  CHECK_THAT(refusal_of("eval", DDH_PROGRAM_EVAL), Catch::Contains("'held out', which is not an eval program"));
  CHECK_THAT(refusal_of("held out", DDH_PROGRAM_TRAIN), Catch::Contains("'held out', which is not an eval program"));
  Outputs model;
  model.add(DDH_PROGRAM_TRAIN, {"loss"});
  model.add(DDH_PROGRAM_EVAL, {"loss"});
  CHECK_THAT(model.refusal(), Catch::Contains("two programs named 'program'"));
}

TEST_CASE("any number of metrics is supported up to a limit, which the error names", "[metrics]") {
  std::vector<std::string> names = {"loss"};
  for (int i = 1; i < 4096; ++i) names.push_back(ddh::str("m", i));
  CHECK(refusal_of_names(DDH_PROGRAM_TRAIN, names).empty());
  names.emplace_back("one_more");
  CHECK_THAT(refusal_of_names(DDH_PROGRAM_TRAIN, names), Catch::Contains("4097 metrics, at most 4096"));
}

TEST_CASE("derived values without derive, and folded buffers without contribution, are refused", "[metrics]") {
  Outputs model;
  model.add(DDH_PROGRAM_TRAIN, {"loss"}, {"loss"});
  model.desc.add_buffer("running", {4}, DDH_F32, model.values, DDH_SYNC_FOLD, 0.9);
  CHECK(model.refusal().empty());
  model.table.derive = nullptr;
  CHECK_THAT(model.refusal(), Catch::Contains("'program' reports derived values") && Catch::Contains("`derive`"));
  Outputs other;
  other.add(DDH_PROGRAM_TRAIN, {"loss"});
  other.desc.add_buffer("running", {4}, DDH_F32, other.values, DDH_SYNC_FOLD, 0.9);
  other.table.contribution = nullptr;
  CHECK_THAT(other.refusal(), Catch::Contains("'running'") && Catch::Contains("`contribution`"));
}

TEST_CASE("a folded buffer of another dtype or with an impossible decay is refused", "[metrics]") {
  CHECK(refusal_of_buffer(DDH_F32, DDH_SYNC_FOLD, 0.9).empty());
  CHECK(refusal_of_buffer(DDH_I64, DDH_SYNC_FOLD, 1).empty());
  CHECK_THAT(refusal_of_buffer(DDH_BF16, DDH_SYNC_FOLD, 0.9), Catch::Contains("DDH_F32 or DDH_I64"));
  CHECK_THAT(refusal_of_buffer(DDH_I64, DDH_SYNC_FOLD, 0.9), Catch::Contains("counts are folded with 1"));
  CHECK_THAT(refusal_of_buffer(DDH_F32, DDH_SYNC_FOLD, 1.5), Catch::Contains("1.5") && Catch::Contains("0 to 1"));
  CHECK_THAT(refusal_of_buffer(DDH_F32, DDH_SYNC_FOLD, std::numeric_limits<double>::quiet_NaN()),
             Catch::Contains("0 to 1"));
  CHECK_THAT(refusal_of_buffer(DDH_F32, DDH_SYNC_STEP, 0.9), Catch::Contains("is not folded"));
}

TEST_CASE("a contribution is added to the decayed buffer, in double and rounded once; counts are exact", "[metrics]") {
  ddh_buffer_desc running{};
  running.dtype = DDH_F32;
  running.numel = 2;
  running.fold_decay = 0.9;
  float values[] = {1.0F, 3e-8F};
  const float given[] = {0.1F, 1.0F};
  fold_into(running, given, values);
  CHECK(values[0] == static_cast<float>(0.9 * 1.0 + static_cast<double>(0.1F)));
  CHECK(values[1] == static_cast<float>(0.9 * static_cast<double>(3e-8F) + 1.0));

  ddh_buffer_desc count{};
  count.dtype = DDH_I64;
  count.numel = 1;
  count.fold_decay = 1;
  int64_t total = (int64_t{1} << 60) + 1;
  const int64_t more = 2;
  fold_into(count, &more, &total);
  CHECK(total == (int64_t{1} << 60) + 3);
}
