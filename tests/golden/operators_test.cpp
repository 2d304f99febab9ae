// SPDX-License-Identifier: Apache-2.0
//
// The code that runs on a GPU, on the CPU: operators of LibTorch alone (model.operators=torch) against the code for
// processors. The *_golden_test.cpp compare them with the reference tensors.
#include <catch2/catch.hpp>

#include "ddh/sdk/torch/dropout.hpp"
#include "golden/compare.hpp"
#include "golden/gpt_fixture.hpp"
#include "golden/vit_fixture.hpp"

using namespace ddhost::test;

namespace {

using Options = ModelDriver::Options;

Options with(Options options, const Options& more) {
  for (const auto& [key, value] : more) options[key] = value;
  return options;
}

// What a step gives: the mean loss, and all gradients.
struct Step {
  double loss;
  std::vector<std::vector<float>> gradients;
};
Step step_of(ddh_plugin_entry_fn entry, const Options& options, const std::vector<int64_t>& samples) {
  ModelDriver model(entry, options);
  for (size_t i = 0; i < model.desc().n_params; ++i) model.value(i) = golden_fill(model.name(i), model.shape(i));
  const double loss = model.train_step(samples);
  CHECK(model.host().bytes(DDH_TAG_ACT) == 0);
  return {loss, gradients(model)};
}

// The gradients of both ways, relative to their length.
void require_close(const Step& a, const Step& b, double tolerance) {
  CHECK(a.loss == Approx(b.loss).epsilon(tolerance));
  REQUIRE(a.gradients.size() == b.gradients.size());
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    CAPTURE(i);
    if (norm(b.gradients[i]) > 1e-7) CHECK(relative_distance(a.gradients[i], b.gradients[i]) < tolerance);
  }
}

Options small_gpt(const SmallText& text, const Options& more = {}) {
  return with(tiny_gpt2(text, "gelu_tanh", "auto"), more);
}

}  // namespace

TEST_CASE("dropout by operators on integers has the bits of the dropout of processors") {
  const ddh::DropoutKey key{1337, 7, 3, 2, 1};
  for (const double probability : {0.1, 0.5, 0.9}) {
    const ddh::Dropout dropout(probability, key);
    const int64_t first = GENERATE(0, 1000003, (int64_t{1} << 40) + 5);
    at::Tensor mine = at::arange(100003, at::kFloat).add_(0.1F), theirs = mine.clone();
    mine[17] = std::numeric_limits<float>::quiet_NaN(), theirs[17] = mine[17];
    ddh::dropout_(dropout, mine, first);
    ddh::detail::drop_by_operators(dropout, theirs, first);
    CHECK(std::memcmp(mine.const_data_ptr(), theirs.const_data_ptr(), mine.nbytes()) == 0);
  }
}

TEST_CASE("LibTorch's operators give the step of the code for processors, with dropout and in 16 bits") {
  const SmallText text("gpt-both-ways");
  const auto [compute, tolerance] =
      GENERATE(std::pair<std::string, double>{"fp32", 1e-5}, std::pair<std::string, double>{"bf16", 0.03},
               std::pair<std::string, double>{"fp16", 0.005});
  const std::string dropout = GENERATE("0.0", "0.2");
  CAPTURE(compute, dropout);
  const Options common = {{"precision.compute", compute}, {"model.dropout", dropout}};
  const Options gpt = small_gpt(text, common);
  require_close(step_of(ddh_entry_gpt, with(gpt, {{"model.operators", "torch"}}), {3, 50, 12}),
                step_of(ddh_entry_gpt, gpt, {3, 50, 12}), tolerance);
  const Options vit = with(tiny_vit("tv", "auto"), with(common, {{"model.stochastic_depth", dropout}}));
  require_close(step_of(ddh_entry_vit, with(vit, {{"model.operators", "torch"}}), {1, 2, 3, 4}),
                step_of(ddh_entry_vit, vit, {1, 2, 3, 4}), tolerance);
}

TEST_CASE("metrics by LibTorch's operators are those of the code for processors") {
  const auto metrics = [](const std::string& operators) {
    ModelDriver model(ddh_entry_vit, with(tiny_vit("tv", "auto"), {{"model.operators", operators}}));
    fill(model);
    auto batch = model.create_batch({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
    model.forward(batch.batch);
    const std::pair<double, double> out = model.metric(0, 0, 0);
    CHECK((model.metric(0, 0, 0) == out));  // a second reading
    CHECK(out.first > 0);
    model.discard();
    model.destroy_batch(batch);
    return out;
  };
  CHECK(metrics("torch").first == Approx(metrics("auto").first).epsilon(1e-6));
}

TEST_CASE("a library of products for processors is refused with LibTorch's operators") {
  const SmallText text("gpt-refused");
  REQUIRE_THROWS_WITH(
      ModelDriver(ddh_entry_gpt, small_gpt(text, {{"model.operators", "torch"}, {"model.matmul", "aten"}})),
      Catch::Contains("model.matmul=aten is for processors") && Catch::Contains("leave it out"));
}
