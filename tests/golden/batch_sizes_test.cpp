// SPDX-License-Identifier: Apache-2.0
//
// A sample has the same logits alone and in a batch with others, in training without its randomness, in an evaluation and in
// generation. Products of another number of rows may add in another order, so some differ by rounding (docs/numerics.md). For
// CAD-MLLM, whose batches are padded, golden_cad_mllm compares losses and generated tokens.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "golden/cnn_fixture.hpp"
#include "golden/gpt_fixture.hpp"
#include "golden/vit_fixture.hpp"
#include "golden/ways.hpp"

#include "golden/compare.hpp"  // last: it restores CHECK

using namespace ddhost::test;

namespace {

constexpr int64_t kSamples = 5;
constexpr int32_t kTrain = 0, kEval = 1;  // programs
constexpr double kRounding = 4e-6;  // of the logits' standard deviation; oneDNN's gemm without AVX-512 takes 2.4e-6

// Logits of samples first .. first + n - 1 by the forward of a program.
using LogitsOf = std::function<std::vector<float>(int32_t program, int64_t first, int64_t n)>;

void check_alone(const LogitsOf& logits_of, int32_t program) {
  const std::vector<float> all = logits_of(program, 0, kSamples);
  std::vector<float> alone;
  for (int64_t i = 0; i < kSamples; ++i) {
    const std::vector<float> one = logits_of(program, i, 1);
    alone.insert(alone.end(), one.begin(), one.end());
  }
  CHECK(largest_difference(alone, all) <= kRounding * deviation(all));
}

// The part of samples first .. first + n - 1 of values for kSamples.
template <class T>
std::vector<T> part(const std::vector<T>& all, int64_t first, int64_t n) {
  const auto one = static_cast<int64_t>(all.size()) / kSamples;
  return {all.begin() + first * one, all.begin() + (first + n) * one};
}

void end(ModelDriver& model, ddh_batch* batch) {
  model.discard();
  model.table().batch_destroy(model.inst(), batch);
}

// A GPT over the letters a to z, so the id of a letter is its place in the alphabet.
ModelDriver::Options letters_gpt(const SmallText& text, const std::string& way) {
  return computed_by(way, {{"model.size", "custom"},
                           {"model.n_layer", "2"},
                           {"model.n_head", "4"},
                           {"model.n_embd", "64"},
                           {"model.context", "24"},
                           {"data.path", text.path()}});
}
std::string letters() {
  std::string text;
  for (const int64_t id : golden_ints("text", 26, 600)) text += static_cast<char>('a' + id);
  return text;
}

}  // namespace

TEST_CASE("a sample of a GPT has its logits alone and in a batch, in training and in an evaluation") {
  const SmallText text("gpt-alone", letters());
  const std::string way = GENERATE(from_range(ways()));
  CAPTURE(way);
  ModelDriver model(ddh_entry_gpt, letters_gpt(text, way));
  fill(model);
  const std::vector<int64_t> ids = golden_ints("ids", 26, kSamples * 24);
  const LogitsOf logits_of = [&](int32_t program, int64_t first, int64_t n) {
    const std::vector<int64_t> mine = part(ids, first, n);
    ddh_batch* batch = gpt_of(model).batch_of_ids(mine, mine, n);
    model.forward(batch, program);
    const std::vector<float> logits = values_of(gpt_of(model).logits(0));
    end(model, batch);
    return logits;
  };
  check_alone(logits_of, kEval);
  check_alone(logits_of, kTrain);
  CHECK(logits_of(kTrain, 0, kSamples) == logits_of(kEval, 0, kSamples));
}

TEST_CASE("a GPT generates the likeliest tokens of an evaluation") {
  const SmallText text("gpt-generates", letters());
  ModelDriver model(ddh_entry_gpt, letters_gpt(text, "aten"));
  fill(model);
  const ddh_sample_args sample{sizeof(ddh_sample_args), 12, "abc", 1, /*temperature*/ 0, 0, kEval, -1};
  ddh::call(model.sampler()->begin, model.inst(), &sample);
  for (;;) {
    ddh_batch* batch = nullptr;
    ddh::call(model.sampler()->next, model.inst(), &batch);
    if (batch == nullptr) break;
    model.forward(batch, kEval);
    end(model, batch);
  }
  std::vector<int64_t> ids;
  for (const char c : std::string(model.sampler()->text(model.inst()))) ids.push_back(c - 'a');
  REQUIRE(ids.size() == 15);
  ddh_batch* batch = gpt_of(model).batch_of_ids(ids, ids, 1);
  model.forward(batch, kEval);
  const std::vector<float> logits = values_of(gpt_of(model).logits(0));
  end(model, batch);
  for (size_t t = 3; t < ids.size(); ++t) {
    const auto row = logits.begin() + static_cast<int64_t>(t - 1) * 26;
    CHECK(std::max_element(row, row + 26) - row == ids[t]);
  }
}

TEST_CASE("an image of a Vision Transformer has its logits alone and in a batch, in training and in an evaluation") {
  const std::string way = GENERATE(from_range(ways())), names = GENERATE("hf", "tv");
  CAPTURE(way, names);
  ModelDriver model(ddh_entry_vit, computed_by(way, tiny_vit(names, "auto")));
  fill(model);
  const std::vector<float> pixels = golden_uni("pixels", kSamples * 3 * 32 * 32);
  const LogitsOf logits_of = [&](int32_t program, int64_t first, int64_t n) {
    ddh_batch* batch =
        vit_of(model).batch_of_pixels(part(pixels, first, n), std::vector<int64_t>(static_cast<size_t>(n), 3));
    model.forward(batch, program);
    const std::vector<float> logits = values_of(vit_of(model).logits(0));
    end(model, batch);
    return logits;
  };
  check_alone(logits_of, kEval);
  check_alone(logits_of, kTrain);
  CHECK(logits_of(kTrain, 0, kSamples) == logits_of(kEval, 0, kSamples));
}

// With batch norms a training normalizes by its micro-batch (golden_cnn).
TEST_CASE("an image or a video of a convolutional network has its logits alone and in a batch") {
  const std::string network = GENERATE("basic", "cnn_lstm", "resnet9", "mobilenet_v2", "efficientnet_b0");
  const bool is_video = network == "cnn_lstm", has_norms = network != "basic" && !is_video;
  CAPTURE(network);
  ModelDriver model(ddh_entry_cnn,
                    is_video ? tiny_lstm() : tiny_cnn({{"model.network", network}, {"model.stochastic_depth", "0"}}));
  fill_all(model, 1);
  const uint64_t numel = is_video ? 5 * 3 * 30 * 30 : 3 * 64 * 64;
  const std::vector<float> pixels = golden_uni("pixels", kSamples * numel);
  const LogitsOf logits_of = [&](int32_t program, int64_t first, int64_t n) {
    ddh_batch* batch =
        cnn_of(model).batch_of_pixels(part(pixels, first, n), std::vector<int64_t>(static_cast<size_t>(n), 3));
    model.forward(batch, program);
    const std::vector<float> logits = ddhost::test::logits_of(batch);
    end(model, batch);
    return logits;
  };
  check_alone(logits_of, kEval);
  if (has_norms) return;
  check_alone(logits_of, kTrain);
  CHECK(logits_of(kTrain, 0, kSamples) == logits_of(kEval, 0, kSamples));
}
