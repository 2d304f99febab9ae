// SPDX-License-Identifier: Apache-2.0
//
// What a CAD-MLLM owes its host: empty batches, accumulation, frozen towers that cost nothing, randomness that nothing
// changes, low precision, generation.
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "../../models/cad_mllm/shapes.hpp"
#include "../../models/cad_mllm/text.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/throws.hpp"
#include "golden/cad_fixture.hpp"
#include "golden/cad_units.hpp"

using namespace ddhost::test;

namespace {

const std::vector<int64_t> kSamples = {3, 50, 7, 9};

double step(ModelDriver& model, int32_t stage, const std::vector<int64_t>& samples, int64_t number = 1) {
  auto batch = model.create_batch(samples, stage, number);
  model.forward(batch.batch, stage, number);
  const auto [sum, count] = model.metric(stage);
  CHECK(count == batch.info.loss_count);
  model.backward(batch.batch, 1 / count, stage, number);
  model.discard();
  model.destroy_batch(batch);
  return sum / count;
}

// Gradients of what a stage trains.
std::vector<std::vector<float>> trained_gradients(ModelDriver& model, int32_t stage) {
  std::vector<std::vector<float>> out;
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    if (learns_in(stage, model.name(i))) out.push_back(model.grad(i));
  }
  return out;
}

constexpr int32_t kEvalAll = 5;  // the program

// Of each row, after an evaluation's forward of a batch that keeps its logits.
std::vector<int64_t> likeliest_tokens(ModelDriver& model, ddh_batch* batch) {
  model.forward(batch, kEvalAll);
  const auto& b = *reinterpret_cast<cad::CadBatch*>(batch);
  const auto V = static_cast<int64_t>(b.logits.size() / b.sample_of_row.size());
  std::vector<int64_t> out;
  for (auto row = b.logits.begin(); row != b.logits.end(); row += V)
    out.push_back(std::max_element(row, row + V) - row);
  model.discard();
  return out;
}

// The greedy continuation of a sample of the evaluation data.
std::string generated(ModelDriver& model, int64_t condition, const std::string& prompt = "", uint32_t length = 200) {
  const ddh_sample_args args{sizeof(ddh_sample_args), length, prompt.c_str(), 1, 0, 0, kEvalAll, condition};
  ddh::call(model.sampler()->begin, model.inst(), &args);
  for (;;) {
    ddh_batch* batch = nullptr;
    ddh::call(model.sampler()->next, model.inst(), &batch);
    if (batch == nullptr) break;
    model.forward(batch, kEvalAll);
    model.discard();
    model.table().batch_destroy(model.inst(), batch);
  }
  return model.sampler()->text(model.inst());
}

cad::Config config_with(const ModelDriver::Options& options) {
  FakeHost host(options);
  const ddh_module* module = nullptr;
  ddh::call(ddh_entry_cad_mllm, host.get(), &module);
  host.set_default("run.seed", "5");
  host.set_default("precision.compute", "fp32");
  host.add_defaults("model", module->desc[0]->config_schema);
  return cad::Config(ddh::Host(host.get()));
}

}  // namespace

TEST_CASE("each view of a sample is encoded by itself, and their tokens follow one another") {
  const cad::Config one = config_with({}), three = config_with({{"model.views", "3"}});
  CHECK(three.image.tokens() == 3 * one.image.tokens());
  const at::Tensor pixels = at::rand({2 * 3, 3, one.image.side, one.image.side});
  const auto filled = [](const auto& name, const auto& shape) { return golden_fill(name, shape, 1); };
  const at::Tensor all = image_features(three, pixels, filled);
  REQUIRE(all.sizes() == at::IntArrayRef({2, three.image.tokens(), one.image.width}));
  const at::Tensor single = image_features(one, pixels, filled).view(all.sizes());
  CHECK(at::equal(all, single));
}

// Keys' cubic kernel with a = -0.75, as torch's bicubic.
double cubic(double x) {
  constexpr double a = -0.75;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((x - 5) * x + 8) * x * a - 4 * a : 0;
}

TEST_CASE("the table of positions is stretched bicubically to the grid of the images, without averaging") {
  const int64_t side = GENERATE(28, 42, 98);
  const cad::Config config = config_with({{"model.table_size", "70"}, {"model.image_size", std::to_string(side)}});
  const int64_t from = 5, to = side / 14, C = config.image.width;
  CAPTURE(to);
  const auto table = [&](int64_t y, int64_t x, int64_t c) {
    return std::sin(1.0 + 1.7 * static_cast<double>(y) + 0.9 * static_cast<double>(x) + 0.3 * static_cast<double>(c));
  };
  // Without patches: the embeddings are the positions.
  const at::Tensor out = image_features(
      config, at::rand({1, 3, side, side}),
      [&](const std::string& name, const std::vector<int64_t>& shape) {
        const auto numel = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
        std::vector<float> values(static_cast<size_t>(numel), 0.0F);
        if (!name.ends_with("position_embeddings")) return values;
        REQUIRE(shape == std::vector<int64_t>{1, 1 + from * from, C});
        for (size_t i = 0; i < values.size(); ++i) {
          const int64_t token = static_cast<int64_t>(i) / C - 1, c = static_cast<int64_t>(i) % C;
          values[i] = token < 0 ? 0.25F : static_cast<float>(table(token / from, token % from, c));
        }
        return values;
      },
      1);
  REQUIRE(out.sizes() == at::IntArrayRef({1, 1 + to * to, C}));
  CHECK(out[0][0].eq(0.25F).all().item<bool>());  // the class token's is not stretched
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  for (int64_t token = 0; token < to * to; ++token) {
    const double at_y = (static_cast<double>(token / to) + 0.5) * scale - 0.5;
    const double at_x = (static_cast<double>(token % to) + 0.5) * scale - 0.5;
    for (int64_t c = 0; c < C; ++c) {
      double expected = 0;
      for (int64_t i = -1; i <= 2; ++i) {
        for (int64_t k = -1; k <= 2; ++k) {
          const double y = std::floor(at_y) + static_cast<double>(i), x = std::floor(at_x) + static_cast<double>(k);
          const auto inside = [&](double v) { return std::clamp(static_cast<int64_t>(v), int64_t{0}, from - 1); };
          expected += cubic(at_y - y) * cubic(at_x - x) * table(inside(y), inside(x), c);
        }
      }
      REQUIRE(out[0][1 + token][c].item<double>() == Approx(expected).margin(1e-5));
    }
  }
}

TEST_CASE("pixels are scaled by ImageNet's statistics for the sizes that take published weights, and else to -1 to 1") {
  CHECK(config_with({}).image.normalize == "half");
  CHECK(config_with({{"model.size", "0.6b"}}).image.normalize == "imagenet");
  CHECK(config_with({{"model.size", "0.6b"}, {"model.normalize", "half"}}).image.normalize == "half");
  const TempFolder folder;
  const auto pixels = [](const ModelDriver::Options& options) {
    ModelDriver model(ddh_entry_cad_mllm, options);
    auto made = model.create_batch({0, 1}, kEvalAll);
    std::vector<float> out = values_of(reinterpret_cast<cad::CadBatch*>(made.batch)->pixels);
    model.destroy_batch(made);
    return out;
  };
  // Made-up images, the same as they are written, and as they are read; each folder is written by the first that uses it.
  for (const char* path : {"", "of_half", "of_imagenet"}) {
    CAPTURE(path);
    ModelDriver::Options options = {{"data.dummy_samples", "10"},
                                    {"data.path", *path == 0 ? "" : folder.file(path)},
                                    {"model.normalize", std::string(path) == "of_imagenet" ? "imagenet" : "half"}};
    if (*path != 0) pixels(options);
    options["model.normalize"] = "half";
    const std::vector<float> half = pixels(options);
    options["model.normalize"] = "imagenet";
    const std::vector<float> imagenet = pixels(options);
    constexpr float kMean[] = {0.485F, 0.456F, 0.406F}, kDeviation[] = {0.229F, 0.224F, 0.225F};
    REQUIRE(imagenet.size() == size_t{2} * 3 * 28 * 28);
    for (size_t i = 0; i < half.size(); ++i) {
      const size_t c = i / (28 * 28) % 3;
      REQUIRE(imagenet[i] == Approx((0.5F * half[i] + 0.5F - kMean[c]) / kDeviation[c]).margin(1e-5));
    }
  }
  CHECK(read_text(folder.path() / "of_half/images/train_0003.png") ==
        read_text(folder.path() / "of_imagenet/images/train_0003.png"));
}

TEST_CASE("a batch without samples has zero gradients and no loss in every stage") {
  const int32_t stage = GENERATE(0, 1, 2);
  ModelDriver model(ddh_entry_cad_mllm, {});
  fill_cad(model);
  auto batch = model.create_batch({}, stage);
  CHECK(batch.info.loss_count == 0);
  model.forward(batch.batch, stage);
  CHECK((model.metric(stage) == std::pair<double, double>(0, 0)));
  model.backward(batch.batch, 1, stage);
  for (const auto& grad : trained_gradients(model, stage)) REQUIRE(grad == std::vector<float>(grad.size(), 0.0F));
  model.discard();
  model.destroy_batch(batch);
}

TEST_CASE("a second micro-batch adds its complete gradient once to a CAD-MLLM") {
  ModelDriver model(ddh_entry_cad_mllm, {});
  fill_cad(model);
  model.global_micro_batch = 0;
  step(model, 2, {3, 50});
  const auto first = trained_gradients(model, 2);
  step(model, 2, {20, 7});
  const auto second = trained_gradients(model, 2);
  auto a = model.create_batch({3, 50}, 2, 1, 0), b = model.create_batch({20, 7}, 2, 1, 1);
  model.forward(a.batch, 2, 1, 0);
  model.forward(b.batch, 2, 1, 1);  // both are alive at once
  model.backward(a.batch, 1 / a.info.loss_count, 2, 1, 0);
  model.backward(b.batch, 1 / b.info.loss_count, 2, 1, 1);
  const auto both = trained_gradients(model, 2);
  for (size_t i = 0; i < first.size(); ++i) {
    for (size_t k = 0; k < first[i].size(); ++k) REQUIRE(both[i][k] == first[i][k] + second[i][k]);
  }
  model.discard(0), model.discard(1);
  model.destroy_batch(a), model.destroy_batch(b);
}

TEST_CASE("every target counts once, and padding changes no sample's loss") {
  ModelDriver model(ddh_entry_cad_mllm, {});
  fill_cad(model);
  // The longest and the shortest sequence are padded to one length in the second case.
  const auto loss = [&](const std::vector<int64_t>& samples) {
    auto batch = model.create_batch(samples, 5);
    model.forward(batch.batch, 5);
    const auto out = model.metric(5);
    CHECK(out.second == batch.info.loss_count);
    model.discard();
    model.destroy_batch(batch);
    return out;
  };
  double sum = 0, targets = 0;
  for (int64_t i = 0; i < cad::kShapes; ++i) {
    const auto [one_sum, one_count] = loss({i});
    // Each byte of the sequence, and the end mark; the prompt is masked.
    CHECK(one_count == static_cast<double>(std::string(cad::kSequences[i]).size() + 1));
    sum += one_sum, targets += one_count;
  }
  const auto [together, count] = loss({0, 1, 2, 3, 4});
  CHECK(count == targets);
  CHECK(together == Approx(sum).epsilon(1e-6));
}

TEST_CASE("what is random in a CAD-MLLM depends on the step and on places among all ranks'") {
  ModelDriver model(ddh_entry_cad_mllm,
                    {{"model.lora_dropout", "0.2"}, {"model.projector_dropout", "0.2"}, {"model.text_dropout", "0.5"}});
  fill_cad(model);
  model.global_micro_batch = 3;
  const double loss = step(model, 2, kSamples, 5);
  const auto expected = trained_gradients(model, 2);
  CHECK(step(model, 2, kSamples, 6) != loss);
  model.global_micro_batch = 2;
  CHECK(step(model, 2, kSamples, 5) != loss);
  model.global_micro_batch = 3;
  model.recompute = true;
  CHECK(step(model, 2, kSamples, 5) == loss);
  CHECK(trained_gradients(model, 2) == expected);
}

TEST_CASE("the modalities of a sample depend on its epoch and its index, not on the step") {
  ModelDriver model(ddh_entry_cad_mllm, {{"model.text_dropout", "0.5"}, {"data.dummy_samples", "64"}});
  fill_cad(model);
  std::vector<int64_t> samples(64);
  std::iota(samples.begin(), samples.end(), 0);
  const double loss = step(model, 2, samples, 5);
  CHECK(step(model, 2, samples, 6) == loss);
  model.epoch = 1;
  CHECK(step(model, 2, samples, 5) != loss);
}

TEST_CASE("a sample keeps a caption that is its only input") {
  const TempFolder folder;
  std::ofstream(folder.file("cloud.xyz")) << "0 0 1\n";
  std::ofstream(folder.file("train.jsonl"))
      << R"({"caption": "a flat plate", "target_text": "{}"})" << '\n'
      << R"({"caption": "a ring", "target_text": "{}", "points": "cloud.xyz"})" << '\n';
  ModelDriver model(ddh_entry_cad_mllm, {{"model.text_dropout", "1"},
                                         {"data.path", folder.path().string()},
                                         {"data.val_path", ""},
                                         {"data.val_fraction", "0"}});
  int with_points = 0;
  for (model.epoch = 0; model.epoch < 20; ++model.epoch) {
    auto made = model.create_batch({0, 1}, 1);
    const auto& batch = *reinterpret_cast<cad::CadBatch*>(made.batch);
    const auto text = [&](int64_t sample) {
      const at::Tensor ids = batch.ids[sample];
      return cad::text_of({ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel()});
    };
    CHECK(text(0) == "Generate a CAD model: a flat plate\n{}");
    const bool has_points = batch.points[1].ne(0).any().item<bool>();
    CHECK(text(1) == (has_points ? "Generate a CAD model\n{}" : "Generate a CAD model: a ring\n{}"));
    with_points += has_points ? 1 : 0;
    model.destroy_batch(made);
  }
  CHECK((with_points > 0 && with_points < 20));
}

TEST_CASE("stages mix modalities by their probabilities, alike at every call") {
  ModelDriver model(ddh_entry_cad_mllm, {{"data.dummy_samples", "2000"}});
  std::vector<int64_t> samples(2000);
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<int64_t>(i);
  // Of each sample: has it an image, has it points.
  const auto inputs = [&](int32_t stage, int64_t epoch) {
    model.epoch = epoch;
    auto made = model.create_batch(samples, stage);
    const auto& batch = *reinterpret_cast<cad::CadBatch*>(made.batch);
    std::vector<std::pair<bool, bool>> out;
    for (int64_t b = 0; b < batch.B; ++b) {
      const auto has = [b](const at::Tensor& t) { return t.defined() && t.select(0, b).ne(0).any().item<bool>(); };
      out.emplace_back(has(batch.pixels), has(batch.points));
    }
    model.destroy_batch(made);
    return out;
  };
  const auto share = [](const std::vector<std::pair<bool, bool>>& all, bool image, bool points) {
    return static_cast<double>(std::count(all.begin(), all.end(), std::pair(image, points))) /
           static_cast<double>(all.size());
  };
  CHECK(share(inputs(0, 1), false, false) == 1);
  CHECK(share(inputs(1, 1), false, true) == Approx(0.7).margin(0.03));
  const auto all = inputs(2, 1);
  CHECK(share(all, false, false) == Approx(0.2).margin(0.03));
  CHECK(share(all, false, true) == Approx(0.3).margin(0.03));
  CHECK(share(all, true, false) == Approx(0.2).margin(0.03));
  CHECK(share(all, true, true) == Approx(0.3).margin(0.03));
  CHECK(inputs(2, 1) == all);
  CHECK(inputs(2, 2) != all);
}

TEST_CASE("samples of one shape differ, and none of the evaluation is one of the training") {
  ModelDriver model(ddh_entry_cad_mllm, {});
  const auto points = [&](int32_t program, int64_t sample) {
    auto made = model.create_batch({sample}, program);
    const std::vector<float> out = values_of(reinterpret_cast<cad::CadBatch*>(made.batch)->points);
    model.destroy_batch(made);
    return out;
  };
  CHECK(points(5, 0) == points(5, 0));
  CHECK(points(5, 0) != points(5, 5));
  for (int64_t i = 0; i < 100; i += cad::kShapes) {
    auto made = model.create_batch({i}, 2, i + 1);
    REQUIRE(values_of(reinterpret_cast<cad::CadBatch*>(made.batch)->points) != points(5, 0));
    model.destroy_batch(made);
  }
}

TEST_CASE("a CAD-MLLM in low precision is near that in fp32") {
  const std::string compute = GENERATE("bf16", "fp16");
  const double roundoff = compute == "bf16" ? 0x1p-8 : 0x1p-11;
  const auto of = [](const std::string& dtype) {
    ModelDriver model(ddh_entry_cad_mllm, {{"precision.compute", dtype}});
    fill_cad(model);
    const double loss = step(model, 2, kSamples);
    return std::pair(loss, trained_gradients(model, 2));
  };
  const auto [loss, gradient] = of("fp32");
  const auto [low_loss, low_gradient] = of(compute);
  CHECK(low_loss != loss);
  CHECK(low_loss == Approx(loss).epsilon(8 * roundoff));
  for (size_t i = 0; i < gradient.size(); ++i) {
    CAPTURE(i, compute);
    CHECK(relative_distance(low_gradient[i], gradient[i]) < 20 * roundoff);
  }
}

TEST_CASE("frozen towers keep nothing for a backward") {
  const auto kept = [](int32_t stage) {
    ModelDriver model(ddh_entry_cad_mllm, {{"model.eval_inputs", "stage"}});
    fill_cad(model);
    auto batch = model.create_batch({1}, stage);
    const auto& program = *model.desc().programs[stage];
    uint32_t frozen = 0;
    for (uint32_t i = 0; i < program.n_units; ++i)
      frozen += (program.position_flags[i] & DDH_POSITION_FORWARD_ONLY) != 0;
    model.forward(batch.batch, stage);
    const int64_t bytes = model.host().bytes(DDH_TAG_ACT), tokens = static_cast<int64_t>(batch.info.items);
    model.discard();
    model.destroy_batch(batch);
    return std::tuple(static_cast<double>(bytes) / static_cast<double>(tokens), frozen);
  };
  const auto [text, text_frozen] = kept(0);
  const auto [all, all_frozen] = kept(2);
  CHECK(text_frozen == 1);  // the embedding
  CHECK(all_frozen == 9);   // four units of the image encoder, five of the point encoder
  // Both towers add tokens to the language model, and a few rows of the projectors.
  CHECK(all < 1.05 * text);
}

TEST_CASE("the model says what it can't read or do") {
  CHECK_THAT(sentence_of([] {
               const ModelDriver model(ddh_entry_cad_mllm, {{"model.vocab", "200"}});
             }),
             Catch::Contains("model.vocab=200") && Catch::Contains("258"));
  CHECK_THAT(sentence_of([] {
               const ModelDriver model(ddh_entry_cad_mllm, {{"model.image_size", "30"}});
             }),
             Catch::Contains("model.image_size=30"));
  CHECK_THAT(sentence_of([] {
               const ModelDriver model(ddh_entry_cad_mllm, {{"model.table_size", "30"}});
             }),
             Catch::Contains("model.table_size=30"));
  CHECK_THAT(sentence_of([] {
               ModelDriver model(ddh_entry_cad_mllm, {{"model.eval_inputs", "image"}});
               model.create_batch({0}, 4);
             }),
             Catch::Contains("stage2_text_pc") && Catch::Contains("eval_inputs"));
  CHECK_THAT(sentence_of([] {
               ModelDriver model(ddh_entry_cad_mllm, {});
               generated(model, -1, std::string(400, 'x'));
             }),
             Catch::Contains("401 tokens"));
  CHECK_THAT(sentence_of([] {
               const ModelDriver model(ddh_entry_cad_mllm, {{"model.max_tokens", "80"}});
             }),
             Catch::Contains("more than 80") && Catch::Contains("model.max_tokens"));
}

TEST_CASE("generation is the evaluation's forward, token by token, and in a batch with others") {
  ModelDriver model(ddh_entry_cad_mllm, {});
  fill_cad(model);
  // The likeliest token after each prompt in an evaluation of all shapes, which pads all but the longest.
  std::vector<int64_t> samples(cad::kShapes);
  std::iota(samples.begin(), samples.end(), 0);
  auto together = model.create_batch(samples, kEvalAll);
  const std::vector<int64_t> first = [&] {
    auto& batch = *reinterpret_cast<cad::CadBatch*>(together.batch);
    batch.keeps_logits = true;
    const std::vector<int64_t> all = likeliest_tokens(model, together.batch);
    std::vector<int64_t> out;
    for (const int64_t sample : samples)
      out.push_back(all.at(static_cast<size_t>(
          std::find(batch.sample_of_row.begin(), batch.sample_of_row.end(), sample) - batch.sample_of_row.begin())));
    return out;
  }();
  model.destroy_batch(together);
  for (const int64_t sample : samples) {
    CAPTURE(sample);
    const std::string prompt = std::string(cad::kCaptions[sample]) + "\n";
    CHECK(generated(model, sample, "", 1) == prompt + cad::text_of({first[static_cast<size_t>(sample)]}));
    // The whole text at once: the likeliest token of each row is the one that was generated after it.
    const std::string text = generated(model, sample, "", 12);
    REQUIRE(text.starts_with(prompt));
    auto alone = model.create_batch({sample}, kEvalAll);
    const auto& inputs = *reinterpret_cast<cad::CadBatch*>(alone.batch);
    std::vector<int64_t> ids;
    cad::append_bytes(ids, text);
    ddh_batch* batch = cad_of(model).batch_of(2, 1, ids, std::vector<int64_t>(ids.size(), cad::kNoTarget),
                                              values_of(inputs.pixels), values_of(inputs.points));
    const std::vector<int64_t> rows = likeliest_tokens(model, batch);
    const size_t prefix = rows.size() - ids.size();
    for (size_t t = prompt.size(); t < ids.size(); ++t) CHECK(rows.at(prefix + t - 1) == ids[t]);
    model.table().batch_destroy(model.inst(), batch);
    model.destroy_batch(alone);
  }
  CHECK(generated(model, -1, "", 3).starts_with("Generate a CAD model\n"));
}
