// SPDX-License-Identifier: Apache-2.0
//
// Requirements on a GPT: accumulation, empty batches, reproducible dropout, errors for bad data.
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <thread>

#include "../../models/ops/choice.hpp"
#include "fixtures/harness/golden_fill.hpp"
#include "fixtures/harness/random_directions.hpp"
#include "fixtures/harness/throws.hpp"
#include "golden/gpt_fixture.hpp"

#include "golden/compare.hpp"  // last: it restores CHECK

using namespace ddhost::test;

namespace {

std::string some_text(size_t characters = 600) {
  std::string text;
  for (const int64_t id : golden_ints("text", 26, characters)) text += static_cast<char>('a' + id);
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

}  // namespace

TEST_CASE("a second micro-batch adds its complete gradient once") {
  const SmallText text("gpt-accumulate", some_text());
  const std::string matmul = GENERATE(from_range(ops::product_names()));
  ModelDriver model(ddh_entry_gpt, options(text, "0.0", matmul));
  fill(model);
  require_second_micro_batch_adds(model, "transformer.wte.weight");
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

TEST_CASE("dropout depends only on the step and on the micro-batch's index over all ranks") {
  const SmallText text("gpt-dropout", some_text());
  ModelDriver model(ddh_entry_gpt, options(text, "0.2"));
  fill(model);
  model.global_micro_batch = 3;
  const double loss = model.train_step({3, 50}, 5);
  const auto expected = gradients(model);
  CHECK(model.train_step({3, 50}, 6) != loss);
  model.global_micro_batch = 2;
  CHECK(model.train_step({3, 50}, 5) != loss);

  model.global_micro_batch = 3;
  model.recompute = true;
  CHECK(model.train_step({3, 50}, 5) == loss);
  CHECK(gradients(model) == expected);

  auto second = model.create_batch({3, 50}, 0, 5, 1);  // of this rank
  model.forward(second.batch, 0, 5, 1);
  CHECK(model.metric(0, 1).first / second.info.loss_count == loss);
  model.discard(1);
  model.destroy_batch(second);
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
    for (const Slope& slope : slopes_of(model, i, gradient[i], 1e-2, loss))
      CHECK(slope.measured == Approx(slope.expected).margin(0.05 * slope.typical + 1e-5));
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

TEST_CASE("the matrix library is chosen from the table, and the log and the configuration name it") {
  const SmallText text("gpt-auto", some_text());
  const std::string expected = ops::chosen_products({8, 16, 64}, DDH_F32, ops::this_processor());
  const ModelDriver model(ddh_entry_gpt, options(text, "0.0", "auto")),
      measuring(ddh_entry_gpt, options(text, "0.0", "measure"));
  CHECK(model.host().option("model.matmul") == expected);
  CHECK_THAT(model.host().log(), Catch::Contains("matrix products by " + expected) && Catch::Contains("by the table"));
  CHECK_THAT(model.host().log(), !Catch::Contains(" ms"));
  CHECK(measuring.host().option("model.matmul") == expected);
  for (const std::string& name : ops::product_names()) CHECK_THAT(measuring.host().log(), Catch::Contains(name + " "));
  CHECK_THAT(measuring.host().log(), Catch::Contains("the quickest is"));
}

TEST_CASE("the sampler depends only on seed, temperature and top_k") {
  const SmallText text("gpt-sampler", some_text());
  ModelDriver model(ddh_entry_gpt, options(text));
  fill(model);
  const auto draw = [&](uint64_t seed, double temperature, int32_t top_k, int64_t condition = -1,
                        const char* prompt = "abc") {
    const ddh_sample_args sample{sizeof(ddh_sample_args), 20, prompt, seed, temperature, top_k, 1, condition};
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
  const std::string first = draw(1, 1.0, 0);
  REQUIRE(first.size() == 23);
  CHECK(first.substr(0, 3) == "abc");
  CHECK(draw(1, 1.0, 0) == first);
  CHECK(draw(1, 1.0, 0, -1, "").size() == 20);  // what an empty prompt begins with is not shown
  CHECK(draw(2, 1.0, 0) != first);
  const std::string likely = draw(1, 0, 0);
  CHECK(likely != first);
  CHECK(draw(2, 0, 5) == likely);
  CHECK(draw(1, 1.0, 1) == likely);
  CHECK(draw(1, 1e-6, 0) == likely);
  CHECK(draw(1, 3.0, 0) != first);
  CHECK_THAT(sentence_of([&] { draw(1, -1.0, 0); }), Catch::Contains("temperature"));
  CHECK_THAT(sentence_of([&] { draw(1, 1.0, 0, 4); }), Catch::Contains("from a prompt only"));
}

TEST_CASE("evaluation samples follow each other, or start at every token by option") {
  const SmallText text("gpt-stride", some_text());  // 600 tokens, of which 60 are for evaluations
  ModelDriver::Options overlapping = options(text);
  overlapping["model.eval_stride"] = "1";
  ModelDriver model(ddh_entry_gpt, options(text)), every(ddh_entry_gpt, overlapping);
  const auto ids = [](ModelDriver& from, int64_t sample) {
    auto batch = from.create_batch({sample}, 1);
    const at::Tensor& tensor = reinterpret_cast<gpt::GptBatch*>(batch.batch)->ids;
    std::vector<int64_t> out(tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel());
    from.destroy_batch(batch);
    return out;
  };
  REQUIRE(model.desc().programs[1]->n_samples == 7);  // 59 targets, of which 3 are after the last sample
  REQUIRE(every.desc().programs[1]->n_samples == 52);
  for (int64_t i = 0; i < 7; ++i) CHECK(ids(model, i) == ids(every, 8 * i));
}

TEST_CASE("several threads create the same batches as one thread") {
  const SmallText text("gpt-loaders", some_text());
  ModelDriver model(ddh_entry_gpt, options(text));
  const auto ids = [&](int64_t sample) {
    auto batch = model.create_batch({sample, 2 * sample});
    const at::Tensor& tensor = reinterpret_cast<gpt::GptBatch*>(batch.batch)->ids;
    std::vector<int64_t> out(tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel());
    model.destroy_batch(batch);
    return out;
  };
  std::vector<std::vector<int64_t>> expected;
  for (int64_t i = 0; i < 200; ++i) expected.push_back(ids(i));
  std::vector<std::vector<std::vector<int64_t>>> got(4);
  std::vector<std::thread> loaders;
  for (auto& mine : got)
    loaders.emplace_back([&] {
      for (int64_t i = 0; i < 200; ++i) mine.push_back(ids(i));
    });
  for (std::thread& loader : loaders) loader.join();
  for (const auto& mine : got) CHECK(mine == expected);
  CHECK(model.host().bytes(DDH_TAG_DATA) == 0);
}

TEST_CASE("the estimate equals the activations that a forward keeps and the FLOPs of the products") {
  const SmallText text("gpt-estimate", some_text());
  const std::string compute = GENERATE("fp32", "bf16"), dropout = GENERATE("0.0", "0.1");
  CAPTURE(compute, dropout);
  ModelDriver::Options given = options(text, dropout);
  given["precision.compute"] = compute;
  given["model.n_embd"] = "64";
  given["model.context"] = "32";
  ModelDriver model(ddh_entry_gpt, given);
  fill(model);
  const ddh_estimate estimate = model.estimate(0, 4);
  const auto estimated = static_cast<double>(estimate.activation_bytes);
  const double forward = estimate.forward_flops, backward = estimate.backward_flops;
  auto batch = model.create_batch({3, 50, 100, 7});
  model.forward(batch.batch);
  const auto kept = static_cast<double>(model.host().bytes(DDH_TAG_ACT));
  CHECK(kept > 0.95 * estimated);
  CHECK(kept < 1.3 * estimated);  // block sizes of the allocator lose up to a quarter
  model.discard();
  model.destroy_batch(batch);
  const double tokens = 4 * 32, C = 64, V = static_cast<double>(model.shape(0)[0]);
  CHECK(forward == 2 * tokens * (2 * 12 * C * C + C * V) + 2 * 4 * tokens * 32 * C);
  CHECK(backward > 2 * forward);  // attention keeps no probabilities, so it computes them again
}

// Attention that had the scores of a whole sample at once would need 4 H T bytes for each token.
TEST_CASE("the memory of a token, kept and at the peak, does not grow with the length of its sample") {
  const SmallText text("gpt-length", some_text(12000));
  const std::string dropout = GENERATE("0.0", "0.1");
  CAPTURE(dropout);
  struct Bytes {
    double kept, peak;
  };
  const auto bytes_of = [&](const char* context, const std::vector<int64_t>& samples) {
    ModelDriver::Options given = options(text, dropout);
    given["model.context"] = context;
    ModelDriver model(ddh_entry_gpt, given);
    fill(model);
    auto batch = model.create_batch(samples);
    model.forward(batch.batch);
    const auto kept = static_cast<double>(model.host().bytes(DDH_TAG_ACT));
    model.backward(batch.batch, batch.info.loss_count);
    model.destroy_batch(batch);
    return Bytes{kept, static_cast<double>(model.host().peak_bytes(DDH_TAG_ACT))};
  };
  const Bytes of_long = bytes_of("1024", {0}), of_short = bytes_of("128", {0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(of_long.kept < 1.05 * of_short.kept);
  CHECK(of_long.peak < 2 * of_short.peak);  // the scores of a sample would be 8 MiB alone
}

TEST_CASE("unusable data is refused with a sentence") {
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
