// SPDX-License-Identifier: Apache-2.0
//
// Heads for fine-tuning and trunks that are frozen but for their end; precision, recall and F1 of an evaluation.
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "../../models/ops/losses.hpp"
#include "fixtures/harness/throws.hpp"
#include "golden/cnn_fixture.hpp"

using namespace ddhost::test;

namespace {

struct Numel {
  int64_t trained, frozen;
};

Numel numel_of(const cnn::NetOptions& options) {
  Numel sum{};
  const cnn::Net net = cnn::make_net(options);
  for (const auto& unit : net.units()) {
    for (size_t i = 0; i < unit->params().size(); ++i) {
      int64_t numel = 1;
      for (const int64_t n : unit->params()[i].shape) numel *= n;
      (i < unit->n_frozen ? sum.frozen : sum.trained) += numel;
    }
  }
  return sum;
}

}  // namespace

// The networks of the source repository with 101 classes. Its CNN-LSTM has one bias where LibTorch's LSTM has two.
TEST_CASE("networks for videos of UCF101 have the parameters of their definitions, and train the right ones") {
  cnn::NetOptions o;
  o.image = {3, 224, 224};
  o.classes = 101;
  o.hidden = 512;
  o.widths = {32, 64, 128, 128};
  o.lstm = {256, 128};
  const auto check = [&](const char* network, int64_t trained, int64_t frozen) {
    CAPTURE(network, o.unfrozen);
    o.network = network;
    const Numel numel = numel_of(o);
    CHECK(numel.trained == trained);
    CHECK(numel.frozen == frozen);
  };
  check("basic", 9730341, 0);
  check("vgg16", 134674341, 0);
  o.freeze_features = true;
  check("ensemble", 1538021, 7769441 - 1538021);
  o.dense_head = true;
  check("mobilenet_v2", 707685, 2223872);
  check("efficientnet_b0", 710245, 4007548);
  // The last 50 layers that Keras counts: 17 convolutions with their batch norms, 11 activations, 4 additions, a padding.
  o.unfrozen = 17;
  check("mobilenet_v2", 707685 + 1855104, 2223872 - 1855104);
  o.unfrozen = 52;  // all
  check("mobilenet_v2", 707685 + 2223872, 0);
  o.unfrozen = 53;
  CHECK_THAT(sentence_of([&] { cnn::make_net(o); }), Catch::Contains("model.unfrozen=53 is more than the 52"));
  o.freeze_features = o.dense_head = false;
  o.image.frames = 5;
  o.hidden = 256;
  o.widths = {32, 64, 128};
  check("cnn_lstm", 89218725, 0);
}

TEST_CASE("the channels of ResNet-9 are multiples of model.width") {
  cnn::NetOptions o;
  o.network = "resnet9";
  o.image = {3, 32, 32};
  o.classes = 10;
  CHECK(numel_of(o).trained == 6573130);
  for (const int64_t w : {1, 7, 32}) {
    o.width = w;
    // Weights between stages and inside them, the first convolution, batch norms, the dense layer.
    CHECK(numel_of(o).trained == (18 + 72 + 288 + 72 + 1152) * w * w + 27 * w + 70 * w + 80 * w + 10);
  }
}

TEST_CASE("the network of every config fits its images") {
  size_t n = 0;
  for (const auto& file : std::filesystem::directory_iterator(std::string(DDHOST_SOURCE_DIR) + "/configs")) {
    if (!file.path().filename().string().starts_with("cnn_")) continue;
    CAPTURE(file.path().string());
    std::ifstream in(file.path());
    const auto config = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/true, /*ignore_comments=*/true);
    FakeHost::Options options;
    for (const auto& [key, value] : config.at("model").items())
      options["model." + key] = value.is_string() ? value.get<std::string>() : value.dump();
    FakeHost fake(options);
    fake.add_defaults("model", cnn::kSchema);
    const ddh::Host host(fake.get());
    const int64_t given = host.i64("model.image_size"), own = host.text("model.dataset") == "cifar10_subset" ? 32 : 28;
    const int64_t side = given > 0 ? given : own;
    const cnn::Shape image{3, side, side, std::max<int64_t>(1, cnn::frames_of(host))};
    CHECK_NOTHROW(cnn::make_net(cnn::net_options(host, image, 101)));
    ++n;
  }
  CHECK(n >= 20);
}

TEST_CASE("a trunk that is frozen but for its last convolutions trains these with their batch norms, and the head") {
  const std::string operators = GENERATE("auto", "torch");
  ModelDriver model(ddh_entry_cnn, small("mobilenet_v2", {{"model.head", "dense"},
                                                          {"model.hidden", "24"},
                                                          {"model.freeze", "features"},
                                                          {"model.unfrozen", "2"},
                                                          {"model.operators", operators}}));
  fill_all(model, 1);
  model.recompute = true;
  const double recomputed = model.train_step({3, 50, 7, 9});
  const auto expected = gradients(model);
  model.recompute = false;
  CHECK(model.train_step({3, 50, 7, 9}) == recomputed);
  const std::set<std::string> trained = {"features.17.conv.2.weight",
                                         "features.17.conv.3.weight",
                                         "features.17.conv.3.bias",
                                         "features.18.0.weight",
                                         "features.18.1.weight",
                                         "features.18.1.bias",
                                         "fc1.weight",
                                         "fc1.bias",
                                         "fc2.weight",
                                         "fc2.bias"};
  std::set<std::string> found;
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    if ((model.desc().params[i]->attributes & DDH_PARAM_FROZEN) != 0) continue;
    CAPTURE(model.name(i));
    found.insert(model.name(i));
    CHECK(norm(model.grad(i)) > 0);
    CHECK(model.grad(i) == expected[i]);
  }
  CHECK(found == trained);
  for (uint32_t i = 0; i < model.desc().n_buffers; ++i) {
    const ddh_buffer_desc& b = *model.desc().buffers[i];
    const std::string name = b.name;
    CAPTURE(name);
    const bool changes = name.starts_with("features.17.conv.3.") || name.starts_with("features.18.");
    CHECK(b.sync == (changes ? DDH_SYNC_FOLD : DDH_SYNC_NEVER));
  }
  // Units before the first trained parameter have no backward.
  const ddh_program_desc& train = *model.desc().programs[0];
  for (uint32_t i = 0; i < train.n_units; ++i)
    CHECK((train.position_flags[i] == DDH_POSITION_FORWARD_ONLY) == (i < 17));
}

TEST_CASE("the dense head of EfficientNet normalizes by the micro-batch, which needs two images") {
  ModelDriver model(
      ddh_entry_cnn,
      small("efficientnet_b0", {{"model.head", "dense"}, {"model.hidden", "24"}, {"model.freeze", "features"}}));
  fill_all(model, 1);
  CHECK(std::isfinite(model.train_step({3, 50})));
  CHECK(norm(model.grad("bn.weight")) > 0);
  CHECK_THAT(sentence_of([&] { model.train_step({3}); }),
             Catch::Contains("batch norm 'bn'") && Catch::Contains("data.micro_batch"));
}

// Its last maps have one pixel, so their variance would be 0 / 0.
TEST_CASE("a micro-batch of one small image is refused where a batch norm would have one value") {
  ModelDriver model(ddh_entry_cnn, small("mobilenet_v2", {{"model.image_size", "32"}}));
  fill_all(model, 1);
  CHECK(std::isfinite(model.train_step({3, 50})));
  CHECK_THAT(sentence_of([&] { model.train_step({3}); }),
             Catch::Contains("batch norm 'features.14") && Catch::Contains("data.micro_batch"));
}

TEST_CASE("a head or a freeze that a network lacks is refused with a sentence") {
  const auto sentence = [](const ModelDriver::Options& more) {
    return sentence_of([&] { const ModelDriver model(ddh_entry_cnn, more); });
  };
  CHECK_THAT(sentence(small("vgg11", {{"model.head", "dense"}})), Catch::Contains("vgg11 has no use for it"));
  CHECK_THAT(sentence(small("mobilenet_v2", {{"model.unfrozen", "3"}})), Catch::Contains("set model.freeze=features"));
}

TEST_CASE("an option that a network does not read is refused") {
  const auto [network, option, value] =
      GENERATE(table<std::string, std::string, std::string>({{"resnet9", "widths", "[4, 6]"},
                                                             {"basic", "width", "32"},
                                                             {"conv3d", "lstm", "[4, 6]"},
                                                             {"basic", "frames", "3"},
                                                             {"vgg11", "head", "dense"},
                                                             {"mobilenet_v2", "hidden", "24"},
                                                             {"conv3d", "padding", "1"},
                                                             {"vgg16", "batch_norm", "true"},
                                                             {"mobilenet_v2", "stochastic_depth", "0.1"},
                                                             {"resnet9", "stem_stride", "1"},
                                                             {"cnn_lstm", "freeze", "features"}}));
  const auto sentence = [](const FakeHost::Options& options) {
    FakeHost fake(options);
    fake.add_defaults("model", cnn::kSchema);
    try {
      cnn::net_options(ddh::Host(fake.get()), {3, 64, 64}, 10);
    } catch (const ddh::Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(sentence({{"model.network", network}}).empty());
  CHECK_THAT(sentence({{"model.network", network}, {"model." + option, value}}),
             Catch::Contains("model." + option + " is given, but the network " + network + " has no use for it"));
}

TEST_CASE("of each class it is counted how many images are given it, and how many of these are its own") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits = {3, 1, 0,   0, 5, 1,  2,   2, 1,    // 0, 1, 0: of equal ones the first
                                     1, 2, nan, 0, 1, 10, -10, 5, -1};  // none, 2, 1
  const at::Tensor counts =
      ops::counts_of_classes(at::tensor(logits).view({6, 3}), at::tensor(std::vector<int64_t>{0, 0, 0, 2, 2, 2}));
  const std::vector<double> expected = {2, 0, 1, 2, 2, 1};
  REQUIRE(counts.scalar_type() == at::kDouble);
  CHECK(std::vector<double>(counts.const_data_ptr<double>(), counts.const_data_ptr<double>() + counts.numel()) ==
        expected);
}

// Labels 0 0 0 1 1 2, classes given 0 0 1 1 2 1. The values are those of scikit-learn's precision_recall_fscore_support with
// average="weighted" and zero_division=0.
TEST_CASE("precision, recall and F1 are those of the classes, weighted by their parts of the images") {
  ModelDriver model(ddh_entry_cnn, small("resnet9"));
  const ddh_program_desc& eval = *model.desc().programs[1];
  REQUIRE(eval.n_metrics == 3 + 2 * 10);
  const std::vector<std::string> names(eval.reported, eval.reported + eval.n_reported);
  CHECK(names == std::vector<std::string>{"loss", "accuracy", "top5", "precision", "recall", "f1"});
  std::vector<double> sums = {9, 3, 5, 2, 1, 0}, counts = {6, 6, 6, 3, 2, 1};
  sums.resize(3 + 10), counts.resize(3 + 10);
  sums.insert(sums.end(), {2, 3, 1, 0, 0, 0, 0, 0, 0, 0});
  counts.insert(counts.end(), 10, 6);
  std::vector<double> values(eval.n_reported);
  ddh::call(model.table().derive, model.inst(), 1, sums.data(), counts.data(), values.data());
  const std::vector<double> expected = {1.5, 0.5, 5.0 / 6, 11.0 / 18, 0.5, 8.0 / 15};
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(names[i]);
    CHECK(values[i] == Approx(expected[i]));
  }
}

TEST_CASE("an evaluation counts its images by class, and a training does not") {
  const std::string operators = GENERATE("auto", "torch");
  ModelDriver model(ddh_entry_cnn, tiny_cnn({{"model.operators", operators}}));
  CHECK(model.desc().programs[0]->n_metrics == 3);
  fill_all(model, 1);
  const std::vector<int64_t> labels = {3, 1, 4, 1, 5, 1};
  ddh_batch* batch = cnn_of(model).batch_of_pixels(golden_uni("pixels", 6 * 3 * 64 * 64), labels);
  model.forward(batch, 1);
  double found = 0, given = 0;
  for (size_t c = 0; c < 10; ++c) {
    const auto own = std::count(labels.begin(), labels.end(), static_cast<int64_t>(c));
    CHECK(model.metric(1, 0, 3 + c).second == static_cast<double>(own));
    found += model.metric(1, 0, 3 + c).first;
    given += model.metric(1, 0, 3 + 10 + c).first;
  }
  CHECK(given == 6);
  CHECK(found == model.metric(1, 0, 1).first);
  model.discard();
  model.table().batch_destroy(model.inst(), batch);
}
