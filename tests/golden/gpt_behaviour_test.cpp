// SPDX-License-Identifier: Apache-2.0
//
// What a GPT owes its host: accumulation, empty batches, dropout that nothing changes, sentences for bad data.
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <thread>

#include "golden/gpt_fixture.hpp"
#include "support/golden_fill.hpp"
#include "support/throws.hpp"

using namespace ddhost::test;

namespace {

std::string some_text() {
  std::string text;
  for (const int64_t id : golden_ints("text", 26, 600)) text += static_cast<char>('a' + id);
  return text;
}

ModelDriver::Options options(const SmallText& text, const std::string& dropout = "0.0",
                             const std::string& matmul = "aten") {
  return {{"model.size", "custom"}, {"model.n_layer", "2"},     {"model.n_head", "2"},      {"model.n_embd", "16"},
          {"model.context", "8"},   {"model.dropout", dropout}, {"data.path", text.path()}, {"model.matmul", matmul}};
}

void fill(ModelDriver& model) {
  for (size_t i = 0; i < model.desc().n_params; ++i) model.value(i) = golden_fill(model.name(i), model.shape(i));
}

std::vector<std::vector<float>> gradients(ModelDriver& model) {
  std::vector<std::vector<float>> out;
  for (size_t i = 0; i < model.desc().n_params; ++i) out.push_back(model.grad(i));
  return out;
}

}  // namespace

TEST_CASE("a second micro-batch adds its complete gradient once") {
  const SmallText text("gpt-accumulate", some_text());
  const std::string matmul = GENERATE(from_range(ops::product_names()));
  ModelDriver model(ddh_entry_gpt, options(text, "0.0", matmul));
  fill(model);
  model.train_step({3, 50});
  const auto first = gradients(model);
  model.train_step({120, 7});
  const auto second = gradients(model);

  auto a = model.create_batch({3, 50}, 0, 1, 0), b = model.create_batch({120, 7}, 0, 1, 1);
  model.forward(a.batch, 0, 1, 0);
  model.forward(b.batch, 0, 1, 1);  // both are alive at once
  model.backward(a.batch, 1 / a.info.loss_count, 0, 1, 0);
  model.backward(b.batch, 1 / b.info.loss_count, 0, 1, 1);
  for (size_t i = 0; i < first.size(); ++i) {
    CAPTURE(model.name(i));
    // The tied embedding is used twice in a micro-batch, so its order of additions is another one.
    const bool tied = model.name(i) == "transformer.wte.weight";
    for (size_t k = 0; k < first[i].size(); ++k) {
      const float sum = first[i][k] + second[i][k];
      if (tied) {
        REQUIRE(model.grad(i)[k] == Approx(sum).margin(1e-6));
      } else {
        REQUIRE(model.grad(i)[k] == sum);
      }
    }
  }
  model.discard(0), model.discard(1);
  model.destroy_batch(a), model.destroy_batch(b);
}

TEST_CASE("a batch without samples has zero gradients and no loss") {
  const SmallText text("gpt-empty", some_text());
  ModelDriver model(ddh_entry_gpt, options(text));
  fill(model);
  auto batch = model.create_batch({});
  model.forward(batch.batch);
  REQUIRE(model.metric() == std::pair<double, double>(0, 0));
  model.backward(batch.batch, 1);
  for (const auto& grad : gradients(model)) REQUIRE(grad == std::vector<float>(grad.size(), 0.0F));
  model.destroy_batch(batch);
}

TEST_CASE("dropout depends on step and sample alone") {
  const SmallText text("gpt-dropout", some_text());
  ModelDriver model(ddh_entry_gpt, options(text, "0.2"));
  fill(model);
  const double loss = model.train_step({3, 50}, 5);
  const auto expected = gradients(model);
  REQUIRE(model.train_step({3, 50}, 6) != loss);

  model.recompute = true;
  REQUIRE(model.train_step({3, 50}, 5) == loss);
  REQUIRE(gradients(model) == expected);

  // Each sample alone: the same masks, so the same mean.
  const double mean = (model.train_step({3}, 5) + model.train_step({50}, 5)) / 2;
  REQUIRE(mean == Approx(loss).epsilon(1e-6));
}

TEST_CASE("the gradient of a GPT with dropout is the slope of its loss") {
  const SmallText text("gpt-slope", some_text());
  ModelDriver model(ddh_entry_gpt, options(text, "0.2"));
  fill(model);
  model.train_step({3, 50});
  const auto gradient = gradients(model);
  const auto loss = [&] {
    auto batch = model.create_batch({3, 50});
    model.forward(batch.batch);
    const auto [sum, count] = model.metric();
    model.discard();
    model.destroy_batch(batch);
    return sum / count;
  };
  for (size_t i = 0; i < gradient.size(); ++i) {
    CAPTURE(model.name(i));
    // Along the gradient, so that the slope is its norm.
    double squares = 0;
    for (const float g : gradient[i]) squares += static_cast<double>(g) * static_cast<double>(g);
    const double norm = std::sqrt(squares), h = 1e-2;
    const std::vector<float> at = model.value(i);
    const auto shifted_loss = [&](double by) {
      for (size_t k = 0; k < at.size(); ++k)
        model.value(i)[k] =
            static_cast<float>(static_cast<double>(at[k]) + by * static_cast<double>(gradient[i][k]) / norm);
      return loss();
    };
    const double slope = (shifted_loss(h) - shifted_loss(-h)) / (2 * h);
    model.value(i) = at;
    REQUIRE(slope == Approx(norm).epsilon(2e-2).margin(2e-4));
  }
}

TEST_CASE("ranks on threads of one process compute the same bits as one alone") {
  const SmallText text("gpt-threads", some_text());
  const auto run = [&] {
    ModelDriver model(ddh_entry_gpt, options(text, "0.1", ops::product_names()[0]));
    fill(model);
    for (int64_t step = 1; step <= 5; ++step) model.train_step({3, 50, 120}, step);
    return gradients(model);
  };
  const auto alone = run();
  std::vector<std::vector<std::vector<float>>> results(3);
  std::vector<std::thread> ranks;
  for (auto& result : results) ranks.emplace_back([&run, &result] { result = run(); });
  for (std::thread& rank : ranks) rank.join();
  for (const auto& result : results) REQUIRE(result == alone);
}

TEST_CASE("the choice of the matrix library is measured and written into the configuration") {
  const SmallText text("gpt-auto", some_text());
  const ModelDriver model(ddh_entry_gpt, options(text, "0.0", "auto"));
  const std::string chosen = model.host().option("model.matmul");
  REQUIRE((chosen == "onednn" || chosen == "onednn_gemm" || chosen == "aten"));
}

TEST_CASE("the sampler draws the same text at every run") {
  const SmallText text("gpt-sampler", some_text());
  ModelDriver model(ddh_entry_gpt, options(text));
  fill(model);
  const auto draw = [&](uint64_t seed) {
    const ddh_sample_args sample{sizeof(ddh_sample_args), 20, "abc", seed, 1.0, 0, 1, -1};
    ddh::call(model.sampler()->begin, model.inst(), &sample);
    while (true) {
      ddh_batch* batch = nullptr;
      ddh::call(model.sampler()->next, model.inst(), &batch);
      if (batch == nullptr) break;
      model.forward(batch, 1);
      model.discard();
      model.table().batch_destroy(model.inst(), batch);
    }
    return std::string(model.sampler()->text(model.inst()));
  };
  const std::string first = draw(1);
  REQUIRE(first.size() == 23);
  REQUIRE(first.substr(0, 3) == "abc");
  REQUIRE(draw(1) == first);
  REQUIRE(draw(2) != first);
}

TEST_CASE("data that cannot be used gets a sentence") {
  const auto sentence = [](ModelDriver::Options given) {
    return sentence_of([&] { const ModelDriver model(ddh_entry_gpt, std::move(given)); });
  };
  const SmallText empty("gpt-none", ""), brief("gpt-brief", "abcdefg"), text("gpt-good", some_text());
  REQUIRE_THAT(sentence(options(empty)), Catch::Contains("is empty"));
  REQUIRE_THAT(sentence(options(brief)), Catch::Contains("6 tokens") && Catch::Contains("needs at least 10"));
  auto missing = options(text);
  missing["data.path"] = "/no/such/file";
  REQUIRE_THAT(sentence(missing), Catch::Contains("'/no/such/file' does not exist"));
  auto uneven = options(text);
  uneven["model.n_head"] = "3";
  REQUIRE_THAT(sentence(uneven), Catch::Contains("model.n_head=3"));

  auto narrow = options(text);
  narrow["model.vocab"] = "20";
  ModelDriver model(ddh_entry_gpt, narrow);
  const std::string too_large = sentence_of([&] { model.create_batch({0}); });
  REQUIRE_THAT(too_large, Catch::Contains("at position") && Catch::Contains("model.vocab=20"));
}
