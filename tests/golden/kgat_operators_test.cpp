// SPDX-License-Identifier: Apache-2.0
//
// The code of KGAT that runs on a GPU, on the CPU: operators of LibTorch alone against the code for processors, and on
// shapes alone (operators_shapes_test.cpp). kgat_golden_test.cpp compares it with the reference tensors.
#include <catch2/catch.hpp>

#include "golden/kgat_fixture.hpp"

using namespace ddhost::test;

namespace {

using Options = ModelDriver::Options;

const std::vector<int64_t> kSamples = {3, 50, 120, 7, 61, 33, 3};

Options with(Options options, const Options& more) {
  for (const auto& [key, value] : more) options[key] = value;
  return options;
}

// What differs in the code: aggregators, variants, parallel edges.
std::vector<Options> forms() {
  return {{{"model.aggregator", "bi-interaction"}, {"model.parallel_edges", "joined"}},
          {{"model.aggregator", "gcn"}, {"model.adjacency", "symmetric"}},
          {{"model.aggregator", "graphsage"}},
          {{"model.variant", "simplified"}, {"model.leaky_slope", "0.2"}},
          {{"model.variant", "mf"}}};
}

struct Result {
  std::vector<double> values;  // losses, then metrics
  size_t n_losses = 0;
  std::vector<std::vector<float>> gradients;
  std::vector<float> attention;
};

// Runs each program of the model once: two micro-batches that add, all nodes, all users.
Result result_of(const Options& options, bool recompute) {
  ModelDriver model(ddh_entry_kgat, options);
  fill(model, 2);
  model.recompute = recompute;
  Result out;
  const auto evaluates = [&](int32_t program) {
    std::vector<int64_t> samples(model.desc().programs[program]->n_samples);
    for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<int64_t>(i);
    auto batch = model.create_batch(samples, program);
    model.forward(batch.batch, program);
    for (uint32_t m = 0; m < model.desc().programs[program]->n_metrics; ++m) {
      out.values.push_back(model.metric(program, 0, m).first);
      CHECK(model.metric(program, 0, m).first == out.values.back());  // a second reading
    }
    model.discard();
    model.destroy_batch(batch);
  };
  if (kgat_of(model).program("attention") >= 0) evaluates(kgat_of(model).program("attention"));
  for (const char* name : {"cf", "kg"}) {
    const int32_t program = kgat_of(model).program(name);
    if (program < 0) continue;
    for (const bool add : {false, true}) {
      auto batch = model.create_batch(add ? std::vector<int64_t>{8, 9} : kSamples, program);
      model.forward(batch.batch, program);
      out.values.push_back(model.metric(program).first);
      model.backward(batch.batch, 0.125, program, 1, 0, add);
      model.discard();
      model.destroy_batch(batch);
    }
    for (size_t i = 0; i < model.desc().n_params; ++i) {
      if (model.desc().programs[program]->trainable[i] != 0) out.gradients.push_back(model.grad(i));
    }
  }
  out.n_losses = out.values.size();
  evaluates(kgat_of(model).program("eval"));
  out.attention = kgat_of(model).attention();
  CHECK(model.host().bytes(DDH_TAG_ACT) == 0);
  CHECK(model.host().bytes(DDH_TAG_DATA) == 0);
  return out;
}

}  // namespace

TEST_CASE("LibTorch's operators give KGAT's losses, gradients, attention and rankings, with dropout and in 16 bits") {
  const Options form = GENERATE(from_range(forms()));
  const auto [compute, tolerance] =
      GENERATE(std::pair<std::string, double>{"fp32", 1e-5}, std::pair<std::string, double>{"bf16", 0.03},
               std::pair<std::string, double>{"fp16", 0.005});
  const bool recompute = GENERATE(false, true);
  INFO(form.begin()->first << "=" << form.begin()->second << ", " << compute);
  const Options common = small_kgat(with(form, {{"precision.compute", compute},
                                                {"model.message_dropout", recompute ? "0.3" : "0.0"},
                                                {"model.matmul", "auto"}}));
  const Result processor = result_of(common, recompute);
  const Result operators = result_of(with(common, {{"model.operators", "torch"}}), recompute);
  REQUIRE(operators.values.size() == processor.values.size());
  for (size_t i = 0; i < processor.values.size(); ++i) {
    CAPTURE(i);
    // A ranking changes where two scores are close; losses come first, two for each training program.
    const double limit = i < processor.n_losses ? tolerance : compute == "fp32" ? 1e-12 : 0.1;
    CHECK(operators.values[i] == Approx(processor.values[i]).epsilon(limit));
  }
  REQUIRE(operators.gradients.size() == processor.gradients.size());
  for (size_t i = 0; i < processor.gradients.size(); ++i) {
    CAPTURE(i);
    REQUIRE(norm(processor.gradients[i]) > 0);
    CHECK(relative_distance(operators.gradients[i], processor.gradients[i]) < tolerance);
  }
  CHECK(relative_distance(operators.attention, processor.attention) < tolerance);
}

TEST_CASE("KGAT by operators has the same bits in every run") {
  const Options options =
      small_kgat({{"model.operators", "torch"}, {"model.matmul", "auto"}, {"model.message_dropout", "0.3"}});
  const Result a = result_of(options, false), b = result_of(options, true);
  CHECK(a.values == b.values);
  CHECK(a.gradients == b.gradients);
  CHECK(a.attention == b.attention);
}

TEST_CASE("kgat does not access memory of the device by itself") {
  const Options form = GENERATE(from_range(forms()));
  const std::string compute = GENERATE("fp32", "bf16");
  INFO(form.begin()->first << "=" << form.begin()->second << ", " << compute);
  ModelDriver model(ddh_entry_kgat, small_kgat(with(form, {{"model.operators", "meta"},
                                                           {"model.matmul", "auto"},
                                                           {"precision.compute", compute},
                                                           {"model.message_dropout", "0.3"}})));
  model.hide_memory = true;
  for (uint32_t g = 0; g < model.desc().n_programs; ++g) {
    const auto program = static_cast<int32_t>(g);
    const bool trains = model.desc().programs[g]->kind == DDH_PROGRAM_TRAIN;
    for (const bool recompute : {false, true}) {
      model.recompute = recompute;
      auto batch = model.create_batch({0, 1, 2, 3, 4}, program);
      for (const bool add : {false, true}) {
        model.forward(batch.batch, program);
        if (model.desc().programs[g]->n_metrics > 0) CHECK(std::isnan(model.metric(program).first));
        if (trains) model.backward(batch.batch, 1, program, 1, 0, add);
        model.discard();
      }
      model.destroy_batch(batch);
    }
  }
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    const std::vector<float>& grad = model.grad(i);  // nothing was written
    CHECK(std::all_of(grad.begin(), grad.end(), [](float x) { return std::isnan(x) || x == 0; }));
  }
  CHECK(model.host().bytes(DDH_TAG_ACT) == 0);
  CHECK(model.host().bytes(DDH_TAG_DATA) == 0);
}
