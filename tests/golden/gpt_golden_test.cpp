// SPDX-License-Identifier: Apache-2.0
//
// The GPT against reference tensors of GPT-2 in the Hugging Face layout.
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <span>

#include "fixtures/harness/golden_data.hpp"
#include "fixtures/harness/golden_fill.hpp"
#include "fixtures/harness/safetensors.hpp"
#include "golden/compare.hpp"
#include "golden/gpt_fixture.hpp"
#include "golden/ways.hpp"

using namespace ddhost::test;

TEST_CASE("the generator of the reference weights gives the numbers in the reference file") {
  REQUIRE(fnv1a64("input.eval") == 0x44e7d321e9571215U);
  REQUIRE(stream_at(fnv1a64("input.eval"), 2) == 0x15bb8f66b16f2951U);
  REQUIRE(uni_at(fnv1a64("input.eval"), 0) == 0.444116473197937);
  REQUIRE(golden_ints("labels", 1000, 4) == std::vector<int64_t>{575, 325, 622, 323});
  REQUIRE(golden_fill("ln_1.weight", {4})[3] == 0.9690369963645935F);
  REQUIRE(golden_fill("conv1.weight", {4, 3, 3, 3}, std::sqrt(2.0))[2] == -0.4497937560081482F);
}

namespace {

// What Gpt::logits has by operators.
std::vector<float> log_probabilities(std::vector<float> logits, size_t rows) {
  const size_t columns = logits.size() / rows;
  for (size_t r = 0; r < rows; ++r) {
    const std::span<float> row(logits.data() + r * columns, columns);
    double sum = 0;
    for (const float value : row) sum += std::exp(static_cast<double>(value));
    for (float& value : row) value = static_cast<float>(static_cast<double>(value) - std::log(sum));
  }
  return logits;
}

}  // namespace

TEST_CASE("a small GPT-2 has the reference's logits, loss and gradients") {
  const auto path = find_data("golden/gpt2_tiny.safetensors");
  if (!path) return;
  const GoldenFile file = read_safetensors(*path);
  const std::string way = GENERATE(from_range(ways()));
  const bool move_params = GENERATE(false, true);
  const bool recompute = GENERATE(false, true);
  CAPTURE(way, move_params, recompute);
  const SmallText text("gpt2-tiny");
  ModelDriver model(ddh_entry_gpt, computed_by(way, tiny_gpt2(text, "gelu_tanh", "auto")));
  model.move_params = move_params;
  model.recompute = recompute;
  load_weights(model, file);

  ddh_batch* batch = gpt_of(model).batch_of_ids(file.at("input.ids").i64(), shifted(file.at("labels").i64(), 2), 2);
  model.forward(batch);
  if (!recompute) {  // else they are dropped
    const std::vector<float> logits = file.at("logits").f32();
    REQUIRE(largest_difference(values_of(gpt_of(model).logits(0)),
                               way == "torch" ? log_probabilities(logits, file.at("input.ids").i64().size()) : logits) <
            1e-5);
  }
  const auto [sum, count] = model.metric();
  REQUIRE(count == 2 * 19 - 4);  // 5 labels are masked, one of them falls off the front
  REQUIRE(sum / count == Approx(static_cast<double>(file.at("loss").f32()[0])).epsilon(1e-6));

  model.backward(batch, 1 / count);
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    CAPTURE(model.name(i));
    const std::vector<float> expected = from_hf(model.name(i), model.shape(i), file.at("g." + model.name(i)).f32());
    REQUIRE(largest_difference(model.grad(i), expected) < 1e-6);
  }
  model.discard();
  model.table().batch_destroy(model.inst(), batch);
  REQUIRE(model.host().bytes(DDH_TAG_ACT) == 0);
  REQUIRE(model.host().bytes(DDH_TAG_DATA) == 0);
}

TEST_CASE("the exact GELU differs from GPT-2's") {
  const auto path = find_data("golden/gpt2_tiny.safetensors");
  if (!path) return;
  const GoldenFile file = read_safetensors(*path);
  const SmallText text("gpt2-tiny-erf");
  ModelDriver model(ddh_entry_gpt, tiny_gpt2(text, "gelu", "aten"));
  load_weights(model, file);
  ddh_batch* batch = gpt_of(model).batch_of_ids(file.at("input.ids").i64(), shifted(file.at("labels").i64(), 2), 2);
  model.forward(batch);
  REQUIRE(largest_difference(values_of(gpt_of(model).logits(0)), file.at("logits_gelu_erf").f32()) < 1e-5);
  REQUIRE(largest_difference(values_of(gpt_of(model).logits(0)), file.at("logits").f32()) > 1e-4);
  model.discard();
  model.table().batch_destroy(model.inst(), batch);
}

TEST_CASE("the full GPT-2 has the reference's loss, last logits and gradient norms") {
  const auto path = find_data("golden/gpt2_124m.safetensors");
  if (!path) return;
  const GoldenFile file = read_safetensors(*path);
  const SmallText text("gpt2-124m");
  ModelDriver model(ddh_entry_gpt, {{"model.size", "gpt2"},
                                    {"model.context", "32"},
                                    {"model.block_size", "1024"},
                                    {"model.vocab", "50257"},
                                    {"model.activation", "gelu_tanh"},
                                    {"model.matmul", "auto"},
                                    {"data.path", text.path()},
                                    {"data.val_fraction", "0"}});
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    std::vector<int64_t> shape = model.shape(i);
    if (is_transposed(model.name(i))) std::swap(shape[0], shape[1]);
    model.value(i) = from_hf(model.name(i), model.shape(i), golden_fill(model.name(i), shape));
  }
  const std::vector<int64_t> ids = golden_ints("input.ids", 50257, 32);
  ddh_batch* batch = gpt_of(model).batch_of_ids(ids, shifted(ids, 1), 1);
  model.forward(batch);
  REQUIRE(largest_difference(values_of(gpt_of(model).logits(0)[31]), file.at("last_logits").f32()) < 1e-4);
  const auto [sum, count] = model.metric();
  REQUIRE(sum / count == Approx(static_cast<double>(file.at("loss").f32()[0])).epsilon(1e-5));
  model.backward(batch, 1 / count);
  const auto order = file.metadata.at("param_order").get<std::vector<std::string>>();
  const std::vector<float> norms = file.at("grad_norm").f32();
  REQUIRE(order.size() == model.desc().n_params);
  for (size_t i = 0; i < order.size(); ++i) {
    CAPTURE(order[i]);
    REQUIRE(norm(model.grad(order[i])) == Approx(static_cast<double>(norms[i])).epsilon(1e-3));
  }
  model.discard();
  model.table().batch_destroy(model.inst(), batch);
}
