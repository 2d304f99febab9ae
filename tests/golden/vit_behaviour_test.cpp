// SPDX-License-Identifier: Apache-2.0
//
// Requirements on a Vision Transformer: accumulation, empty batches, reproducible randomness, low precision.
#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/harness/golden_data.hpp"
#include "fixtures/harness/random_directions.hpp"
#include "fixtures/harness/safetensors.hpp"
#include "fixtures/harness/throws.hpp"
#include "golden/vit_fixture.hpp"

using namespace ddhost::test;

namespace {

ModelDriver::Options options(ModelDriver::Options more = {}, const std::string& names = "tv") {
  ModelDriver::Options all = tiny_vit(names, "aten");
  for (const auto& [key, value] : more) all[key] = value;
  return all;
}

const ModelDriver::Options kAllRandom = {{"model.dropout", "0.2"},        {"model.attention_dropout", "0.1"},
                                         {"model.mixup", "0.4"},          {"model.stochastic_depth", "0.5"},
                                         {"model.crop_padding", "2"},     {"model.flip", "true"},
                                         {"model.label_smoothing", "0.1"}};

}  // namespace

TEST_CASE("a second micro-batch adds its complete gradient once to a Vision Transformer") {
  const std::string names = GENERATE("hf", "tv");
  ModelDriver model(ddh_entry_vit, options({}, names));
  fill(model);
  require_second_micro_batch_adds(model);
}

TEST_CASE("a batch without images has zero gradients and no loss") {
  ModelDriver model(ddh_entry_vit, options(kAllRandom));
  fill(model);
  auto batch = model.create_batch({});
  model.forward(batch.batch);
  CHECK((model.metric() == std::pair<double, double>(0, 0)));
  model.backward(batch.batch, 1);
  for (const auto& grad : gradients(model)) REQUIRE(grad == std::vector<float>(grad.size(), 0.0F));
  model.destroy_batch(batch);
}

TEST_CASE("randomness in a Vision Transformer depends only on the step and the micro-batch's index over all ranks") {
  ModelDriver model(ddh_entry_vit, options(kAllRandom));
  fill(model);
  model.global_micro_batch = 3;
  const double loss = model.train_step({3, 50, 7}, 5);
  const auto expected = gradients(model);
  CHECK(model.train_step({3, 50, 7}, 6) != loss);
  model.global_micro_batch = 2;
  CHECK(model.train_step({3, 50, 7}, 5) != loss);
  model.global_micro_batch = 3;
  model.recompute = true;
  CHECK(model.train_step({3, 50, 7}, 5) == loss);
  CHECK(gradients(model) == expected);
  auto second = model.create_batch({3, 50, 7}, 0, 5, 1);  // of this rank
  model.forward(second.batch, 0, 5, 1);
  CHECK(model.metric(0, 1).first / second.info.loss_count == loss);
  model.discard(1);
  model.destroy_batch(second);
}

TEST_CASE("each option of randomness changes the training and not an evaluation") {
  const auto losses = [](const ModelDriver::Options& more) {
    ModelDriver model(ddh_entry_vit, options(more));
    fill(model);
    const double train = model.train_step({3, 50, 7});
    auto batch = model.create_batch({3, 50, 7}, 1);
    model.forward(batch.batch, 1);
    const double eval = model.metric(1).first;
    model.discard();
    model.destroy_batch(batch);
    return std::pair(train, eval);
  };
  const auto [train, eval] = losses({});
  for (const auto& option : kAllRandom) {
    CAPTURE(option.first);
    const auto other = losses({option});
    CHECK(other.first != train);
    CHECK(other.second == eval);
  }
}

TEST_CASE("the gradient of a Vision Transformer with all its randomness is the slope of its loss") {
  const std::string names = GENERATE("hf", "tv");
  ModelDriver model(ddh_entry_vit, options(kAllRandom, names));
  fill(model);
  const std::vector<int64_t> samples = {3, 50, 7, 200};
  model.train_step(samples);
  const auto gradient = gradients(model);
  const auto loss = [&] {
    auto batch = model.create_batch(samples);
    model.forward(batch.batch);
    const auto [sum, count] = model.metric();
    model.discard();
    model.destroy_batch(batch);
    return sum / count;
  };
  for (size_t i = 0; i < gradient.size(); ++i) {
    CAPTURE(model.name(i));
    // A key's bias shifts all scores of a query by the same amount, so its gradient is only rounding. That of the logits,
    // divided by the step, is a slope of 1.2e-5.
    for (const Slope& slope : slopes_of(model, i, gradient[i], 1e-2, loss))
      CHECK(slope.measured == Approx(slope.expected).margin(0.05 * slope.typical + 2e-5));
  }
}

TEST_CASE("a Vision Transformer in low precision differs from the reference only by its roundings") {
  const auto path = find_data("golden/vit_tiny_tv.safetensors");
  if (!path) return;
  const GoldenFile file = read_safetensors(*path);
  const std::string compute = GENERATE("bf16", "fp16");
  const double roundoff = compute == "bf16" ? 0x1p-8 : 0x1p-11;
  ModelDriver model(ddh_entry_vit, options({{"precision.compute", compute}}));
  for (size_t i = 0; i < model.desc().n_params; ++i) model.value(i) = file.at("w." + model.name(i)).f32();
  ddh_batch* batch = vit_of(model).batch_of_pixels(file.at("input.pixels").f32(), file.at("labels").i64());
  model.forward(batch);
  const std::vector<float> expected = file.at("logits").f32();
  const double error = relative_distance(values_of(vit_of(model).logits(0)), expected);
  CHECK(error < 4 * roundoff);
  CHECK(error > roundoff / 64);  // it is rounded at all
  const auto [sum, count] = model.metric();
  CHECK(sum / count == Approx(static_cast<double>(file.at("loss").f32()[0])).epsilon(4 * roundoff));
  model.backward(batch, 1 / count);
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    CAPTURE(model.name(i), compute);
    CHECK(relative_distance(model.grad(i), file.at("g." + model.name(i)).f32()) < 16 * roundoff);
  }
  model.discard();
  model.table().batch_destroy(model.inst(), batch);
}

TEST_CASE("a recomputed Vision Transformer keeps less between forward and backward") {
  const auto kept = [](bool recompute) {
    ModelDriver model(ddh_entry_vit, options());
    fill(model);
    model.recompute = recompute;
    auto batch = model.create_batch({3, 50, 7, 9, 11, 13, 15, 17});
    model.forward(batch.batch);
    const int64_t bytes = model.host().bytes(DDH_TAG_ACT);
    model.discard();
    model.destroy_batch(batch);
    return bytes;
  };
  CHECK(kept(true) * 5 < kept(false));
}

TEST_CASE("the estimate of a Vision Transformer equals the kept memory and the FLOPs of its products") {
  const std::string compute = GENERATE("fp32", "bf16"), dropout = GENERATE("0.0", "0.1");
  CAPTURE(compute, dropout);
  ModelDriver model(ddh_entry_vit, options({{"precision.compute", compute},
                                            {"model.attention_dropout", dropout},
                                            {"model.width", "64"},
                                            {"model.patch", "4"}}));
  fill(model);
  constexpr uint32_t kImages = 8;
  const ddh_estimate estimate = model.estimate(0, kImages);
  const auto estimated = static_cast<double>(estimate.activation_bytes);
  const double forward = estimate.forward_flops, backward = estimate.backward_flops;
  auto batch = model.create_batch({3, 50, 100, 7, 1, 2, 4, 5});
  model.forward(batch.batch);
  const auto kept = static_cast<double>(model.host().bytes(DDH_TAG_ACT));
  CHECK(kept > 0.97 * estimated);
  CHECK(kept < 1.3 * estimated);  // block sizes of the allocator lose up to a quarter
  model.discard();
  model.destroy_batch(batch);
  const double images = kImages, T = 65, C = 64, rows = images * T;
  const double embedding = 2 * images * 64 * 48 * C, head = 2 * images * C * 10;
  const double blocks = 2 * (2 * rows * 12 * C * C + 4 * rows * T * C);
  CHECK(forward == embedding + blocks + head);
  CHECK(backward > 1.9 * forward);
}

TEST_CASE("an impossible Vision Transformer is refused with a sentence") {
  const auto sentence = [](const ModelDriver::Options& more) {
    return sentence_of([&] { const ModelDriver model(ddh_entry_vit, options(more)); });
  };
  CHECK_THAT(sentence({{"model.n_head", "5"}}), Catch::Contains("model.n_head=5"));
  CHECK_THAT(sentence({{"model.patch", "7"}}), Catch::Contains("patches of 7"));
  CHECK_THAT(sentence({{"model.classes", "4"}}), Catch::Contains("model.classes=4"));
  CHECK_THAT(sentence({{"model.resize", "16"}}), Catch::Contains("model.resize=16"));
  CHECK_THAT(sentence({{"data.path", "/no/such/folder"}}), Catch::Contains("'/no/such/folder' is not a folder"));
}
