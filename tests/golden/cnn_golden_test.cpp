// SPDX-License-Identifier: Apache-2.0
//
// Convolutional networks against reference tensors of torch and torchvision.
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fixtures/harness/golden_data.hpp"
#include "fixtures/harness/safetensors.hpp"
#include "fixtures/harness/seen_inputs.hpp"
#include "golden/cnn_fixture.hpp"

using namespace ddhost::test;

namespace {

ModelDriver::Options torchvision(const std::string& network, int64_t side, const char* channels_last = "true") {
  return {{"model.network", network},      {"model.dropout", "0"},
          {"model.stochastic_depth", "0"}, {"model.dataset", "made_up"},
          {"model.channels", "3"},         {"model.image_size", std::to_string(side)},
          {"model.classes", "1000"},       {"model.channels_last", channels_last}};
}

// The mean of each channel over height and width: x (B, channels, height, width) -> (B, channels)
std::vector<float> channel_means(const SeenInputs::Input& x) {
  const auto channels = static_cast<size_t>(x.sizes.at(0) * x.sizes.at(1)), pixels = x.values.size() / channels;
  std::vector<float> means;
  for (size_t c = 0; c < channels; ++c) {
    double sum = 0;
    for (size_t k = 0; k < pixels; ++k) sum += static_cast<double>(x.values[c * pixels + k]);
    means.push_back(static_cast<float>(sum / static_cast<double>(pixels)));
  }
  return means;
}

}  // namespace

TEST_CASE("small networks of images and of videos have the reference's logits, loss and gradients") {
  const std::string network = GENERATE("basic_cnn", "cnn_lstm");
  const auto path = find_data("golden/" + network + "_tiny.safetensors");
  if (!path) return;
  const GoldenFile file = read_safetensors(*path);
  const bool move_params = GENERATE(false, true);
  const bool recompute = GENERATE(false, true);
  const ModelDriver::Options options =
      GENERATE(ModelDriver::Options{}, ModelDriver::Options{{"model.channels_last", "false"}},
               ModelDriver::Options{{"model.operators", "torch"}});
  CAPTURE(network, move_params, recompute, options);
  ModelDriver model(ddh_entry_cnn, network == "cnn_lstm" ? tiny_lstm(options) : tiny_cnn(options));
  model.move_params = move_params;
  model.recompute = recompute;
  // The reference has 5 classes, our data more: the other rows of the classifier are far below.
  constexpr size_t kClasses = 5;
  const size_t all_classes = model.grad("fc2.bias").size();
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    std::vector<float> values = file.at("w." + model.name(i)).f32();
    values.resize(model.value(i).size(), model.name(i) == "fc2.bias" ? -1e4F : 0.0F);
    model.value(i) = values;
  }
  ddh_batch* batch = cnn_of(model).batch_of_pixels(file.at("input").f32(), file.at("labels").i64());
  model.forward(batch);
  const std::vector<float> all = logits_of(batch), expected = file.at("logits").f32();
  for (size_t b = 0; b < 3; ++b) {
    const auto row = all.begin() + static_cast<int64_t>(all_classes * b),
               other = expected.begin() + static_cast<int64_t>(kClasses * b);
    CHECK(largest_difference({row, row + kClasses}, {other, other + kClasses}) < 1e-5);
  }
  const auto [sum, count] = model.metric();
  CHECK(sum / count == Approx(static_cast<double>(file.at("loss").f32()[0])).epsilon(1e-6));
  model.backward(batch, 1 / count);
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    CAPTURE(model.name(i));
    std::vector<float> gradient = file.at("g." + model.name(i)).f32();
    gradient.resize(model.grad(i).size(), 0.0F);
    CHECK(largest_difference(model.grad(i), gradient) < 1e-5);
  }
  model.discard();
  model.table().batch_destroy(model.inst(), batch);
  CHECK(model.host().bytes(DDH_TAG_ACT) == 0);
  CHECK(model.host().bytes(DDH_TAG_DATA) == 0);
}

TEST_CASE("the ensemble of MobileNetV2, EfficientNet-B0 and a small network has the reference's logits") {
  const auto path = find_data("golden/ensemble.safetensors");
  if (!path) return;
  const GoldenFile file = read_safetensors(*path);
  ModelDriver::Options options = torchvision("ensemble", 224);
  options["model.classes"] = "101";
  ModelDriver model(ddh_entry_cnn, options);
  uint64_t numel = 0;
  for (uint32_t i = 0; i < model.desc().n_params; ++i) numel += model.desc().params[i]->numel;
  CHECK(numel == file.metadata.at("params").get<uint64_t>());
  fill_all(model, file.metadata.at("gain").get<double>());
  ddh_batch* batch = cnn_of(model).batch_of_pixels(golden_uni("input.eval", 2 * 3 * 224 * 224), {0, 1});
  model.forward(batch, 1);
  const std::vector<float> expected = file.at("eval.logits").f32();
  CHECK(largest_difference(logits_of(batch), expected) <= 1e-4 * deviation(expected) + 1e-5);
  model.discard();
  model.table().batch_destroy(model.inst(), batch);
}

TEST_CASE("torchvision's networks have its features, logits, loss, gradient norms and statistics in both layouts") {
  const std::string network =
      GENERATE("mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0", "vgg16");
  const auto path = find_data("golden/tv_" + network + ".safetensors");
  if (!path) return;
  const GoldenFile file = read_safetensors(*path);
  const char* const channels_last = GENERATE("false", "true");
  CAPTURE(network, channels_last);
  const std::vector<int64_t> labels = file.at("train.labels").i64();
  const auto check_values = [&](const std::vector<float>& values, const std::string& name) {
    CAPTURE(name);
    const std::vector<float> expected = file.at(name).f32();
    CHECK(largest_difference(values, expected) <= 1e-4 * deviation(expected) + 1e-5);
  };
  const auto gain = file.metadata.at("gain").get<double>();
  {
    ModelDriver model(ddh_entry_cnn, torchvision(network, 224, channels_last));
    fill_all(model, gain);
    ddh_batch* batch = cnn_of(model).batch_of_pixels(golden_uni("input.eval", 2 * 3 * 224 * 224), {0, 1});
    const SeenInputs pooled("aten::adaptive_avg_pool2d");
    model.forward(batch, 1);
    REQUIRE_FALSE(SeenInputs::all().empty());
    check_values(channel_means(SeenInputs::all().back()), "eval.feature_mean");  // the classifier pools the features
    check_values(logits_of(batch), "eval.logits");
    model.discard();
    model.table().batch_destroy(model.inst(), batch);
  }
  ModelDriver model(ddh_entry_cnn, torchvision(network, 64, channels_last));
  uint64_t numel = 0;
  for (uint32_t i = 0; i < model.desc().n_params; ++i) numel += model.desc().params[i]->numel;
  CHECK(numel == file.metadata.at("params").get<uint64_t>());
  fill_all(model, gain);
  ddh_batch* batch = cnn_of(model).batch_of_pixels(golden_uni("input.train", 4 * 3 * 64 * 64), labels);
  model.forward(batch);
  check_values(logits_of(batch), "train.logits");
  const auto [sum, count] = model.metric();
  CHECK(sum / count == Approx(static_cast<double>(file.at("train.loss").f32()[0])).epsilon(1e-4));
  model.backward(batch, 1 / count);
  fold(model);
  const auto check_norms = [&](const std::string& names, const std::string& norms, const auto& values) {
    const auto order = file.metadata.at(names).get<std::vector<std::string>>();
    for (size_t i = 0; i < order.size(); ++i) {
      CAPTURE(order[i]);
      const auto expected = static_cast<double>(file.at(norms).f32()[i]);
      // Smaller ones are rounding: of a convolution before a batch norm, for one.
      if (expected > 1e-4) CHECK(norm(values(order[i])) == Approx(expected).epsilon(1e-2));
    }
  };
  check_norms("param_order", "train.grad_norm", [&](const std::string& name) { return model.grad(name); });
  if (model.desc().n_buffers > 0)
    check_norms("running_order", "train.running_stat_norm",
                [&](const std::string& name) { return buffer_of(model, name); });
  model.discard();
  model.table().batch_destroy(model.inst(), batch);
}

TEST_CASE("torchvision's networks have its names and shapes") {
  const auto path = find_data("golden/manifest_torchvision.json");
  if (!path) return;
  const nlohmann::json manifest = nlohmann::json::parse(std::ifstream(*path));
  const std::string network =
      GENERATE("mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0", "vgg16", "vgg16_bn");
  CAPTURE(network);
  std::map<std::string, std::vector<int64_t>> expected, found;
  for (const auto& entry : manifest.at(network))
    expected[entry.at(0).get<std::string>()] = entry.at(1).get<std::vector<int64_t>>();
  ModelDriver model(ddh_entry_cnn, torchvision(network, 64));
  for (size_t i = 0; i < model.desc().n_params; ++i) found[model.name(i)] = model.shape(i);
  for (uint32_t i = 0; i < model.desc().n_buffers; ++i) {
    const ddh_buffer_desc& b = *model.desc().buffers[i];
    found[b.name] = {b.shape, b.shape + b.n_dims};
  }
  CHECK(found == expected);
}
