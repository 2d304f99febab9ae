// SPDX-License-Identifier: Apache-2.0
//
// Requirements on convolutional networks: empty batches, frozen trunks, reproducible randomness.
#include <ATen/ops/conv3d.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool3d.h>
#include <ATen/ops/tensor.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "fixtures/harness/throws.hpp"
#include "golden/cnn_fixture.hpp"

using namespace ddhost::test;

namespace {

// Logits of four images of noise in program `program`.
std::vector<float> forward(ModelDriver& model, int32_t program, size_t side) {
  ddh_batch* batch = cnn_of(model).batch_of_pixels(golden_uni("pixels", 4 * 3 * side * side), {3, 1, 4, 1});
  model.forward(batch, program);
  const std::vector<float> logits = logits_of(batch);
  model.discard();
  model.table().batch_destroy(model.inst(), batch);
  return logits;
}

}  // namespace

TEST_CASE("a batch without images has zero gradients, no loss and no statistics") {
  ModelDriver model(ddh_entry_cnn, tiny_cnn({{"model.batch_norm", "true"}}));
  fill_all(model, 1);
  auto batch = model.create_batch({});
  model.forward(batch.batch);
  CHECK((model.metric() == std::pair<double, double>(0, 0)));
  model.backward(batch.batch, 1);
  for (const auto& grad : gradients(model)) REQUIRE(grad == std::vector<float>(grad.size(), 0.0F));
  std::vector<float> given(64);
  int32_t is_given = 1;
  ddh::call(model.table().contribution, model.inst(), 0, 0, 0, given.data(), &is_given);
  CHECK(is_given == 0);
  model.discard();
  model.destroy_batch(batch);
}

TEST_CASE("batch norms use the micro-batch in training and the running statistics in an evaluation") {
  ModelDriver model(ddh_entry_cnn, tiny_cnn({{"model.batch_norm", "true"}}));
  fill_all(model, 1);
  const std::vector<float> training = forward(model, 0, 64), evaluation = forward(model, 1, 64);
  const std::vector<float> mean = buffer_of(model, "bn1.running_mean");
  auto batch = model.create_batch({3, 50, 7, 9});
  model.forward(batch.batch);
  CHECK(buffer_of(model, "bn1.running_mean") == mean);  // the host folds
  fold(model);
  CHECK(buffer_of(model, "bn1.running_mean") != mean);
  model.discard();
  model.destroy_batch(batch);
  CHECK(forward(model, 0, 64) == training);
  CHECK(forward(model, 1, 64) != evaluation);
}

TEST_CASE("a frozen trunk has no gradients, keeps its statistics and computes as in an evaluation") {
  const std::string network = GENERATE("mobilenet_v2", "efficientnet_b0", "vgg11_bn");
  CAPTURE(network);
  ModelDriver model(ddh_entry_cnn, small(network, {{"model.freeze", "features"}}));
  fill_all(model, 1);
  CHECK(forward(model, 0, 32) == forward(model, 1, 32));
  model.train_step({3, 50, 7, 9});
  size_t trained = 0;
  for (uint32_t i = 0; i < model.desc().n_params; ++i) {
    const bool is_frozen = (model.desc().params[i]->attributes & DDH_PARAM_FROZEN) != 0;
    CAPTURE(model.name(i));
    CHECK(is_frozen == model.name(i).starts_with("features."));
    if (is_frozen) continue;
    trained += 1;
    CHECK(norm(model.grad(i)) > 0);
  }
  CHECK(trained == (network == "vgg11_bn" ? 6 : 2));
  for (uint32_t i = 0; i < model.desc().n_buffers; ++i) CHECK(model.desc().buffers[i]->sync == DDH_SYNC_NEVER);
}

TEST_CASE("dropout and stochastic depth depend only on the step and the micro-batch's index over all ranks") {
  ModelDriver model(ddh_entry_cnn, small("efficientnet_b0", {{"model.stochastic_depth", "0.5"}}));
  fill_all(model, 1);
  model.global_micro_batch = 3;
  const std::vector<int64_t> samples = {3, 50, 7, 9};
  const double loss = model.train_step(samples, 5);
  const auto expected = gradients(model);
  CHECK(model.train_step(samples, 6) != loss);
  model.global_micro_batch = 2;
  CHECK(model.train_step(samples, 5) != loss);
  model.global_micro_batch = 3;
  model.recompute = true;
  CHECK(model.train_step(samples, 5) == loss);
  CHECK(gradients(model) == expected);
}

TEST_CASE("a second micro-batch adds its complete gradient once to a convolutional network") {
  ModelDriver model(ddh_entry_cnn, tiny_cnn({{"model.batch_norm", "true"}}));
  fill_all(model, 1);
  require_second_micro_batch_adds(model);
}

TEST_CASE("channels_last changes only roundings: the loss and the gradients of every kind of layer") {
  const std::string network = GENERATE("resnet9", "mobilenet_v3_small", "ensemble", "pretrained_cnn_lstm", "conv3d");
  const bool is_video = network.ends_with("lstm") || network == "conv3d";
  const auto step = [&](const char* channels_last) {
    ModelDriver model(ddh_entry_cnn, tiny_cnn({{"model.network", network},
                                               {"model.frames", is_video ? "3" : "5"},
                                               {"model.dataset", is_video ? "moving_mnist" : "made_up"},
                                               {"model.stochastic_depth", "0"},
                                               {"model.channels_last", channels_last}}));
    fill_all(model, 1);
    ddh_batch* batch =
        cnn_of(model).batch_of_pixels(golden_uni("pixels", 4 * (is_video ? 3 : 1) * 3 * 64 * 64), {3, 1, 4, 1});
    const double loss = model.train_step(batch, 4);
    model.table().batch_destroy(model.inst(), batch);
    return std::pair(loss, gradients(model));
  };
  const auto [loss, gradient] = step("false");
  const auto [other_loss, other_gradient] = step("true");
  CAPTURE(network);
  CHECK(other_loss == Approx(loss).epsilon(1e-4));
  double largest = 0;
  for (const std::vector<float>& g : gradient) largest = std::max(largest, norm(g));
  for (size_t i = 0; i < gradient.size(); ++i) {
    CAPTURE(i);
    // Much smaller ones are rounding: of a bias before a batch norm, for one.
    if (norm(gradient[i]) > 1e-5 * largest) CHECK(relative_distance(other_gradient[i], gradient[i]) < 0.05);
  }
}

TEST_CASE("the loss with class weights and label smoothing is LibTorch's cross-entropy") {
  const std::vector<double> weights = {2, 0.5, 1, 1, 4, 0.25, 1, 1, 1, 3};
  ModelDriver model(ddh_entry_cnn, tiny_cnn({{"model.class_weights", nlohmann::json(weights).dump()},
                                             {"model.label_smoothing", "0.1"}}));
  fill_all(model, 1);
  auto batch = model.create_batch({3, 50, 7, 9, 11, 13, 15, 17});
  keep_logits(batch.batch);
  model.forward(batch.batch);
  const std::vector<int64_t>& labels = reinterpret_cast<cnn::CnnBatch*>(batch.batch)->images.labels;
  const at::Tensor expected =
      at::cross_entropy_loss(at::tensor(logits_of(batch.batch)).view({8, 10}), at::tensor(labels),
                             at::tensor(weights, at::kFloat), at::Reduction::Mean, -100, 0.1);
  const auto [sum, count] = model.metric();
  CHECK(sum / count == Approx(expected.item<double>()).epsilon(1e-6));
  model.discard();
  model.destroy_batch(batch);
}

TEST_CASE("the estimate of a convolutional network equals the kept memory and the FLOPs of its layers") {
  const std::string network =
      GENERATE("basic", "resnet9", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "vgg11");
  CAPTURE(network);
  ModelDriver model(ddh_entry_cnn, small(network, {{"model.padding", network == "basic" ? "1" : "0"},
                                                   {"model.batch_norm", network == "basic" ? "true" : "false"}}));
  fill_all(model, 1);
  const ddh_estimate estimate = model.estimate(0, 8);
  const auto estimated = static_cast<double>(estimate.activation_bytes);
  const double forward = estimate.forward_flops, backward = estimate.backward_flops;
  auto batch = model.create_batch({3, 50, 100, 7, 1, 2, 4, 5});
  model.forward(batch.batch);
  const auto kept = static_cast<double>(model.host().bytes(DDH_TAG_ACT));
  CHECK(kept > 0.9 * estimated);
  CHECK(kept < 1.3 * estimated);  // block sizes of the allocator lose up to a quarter
  model.discard();
  model.destroy_batch(batch);
  if (network == "basic") {
    // Convolutions on 32, 16, 8 and 4 pixels, then 512 x 512 and 512 x 10.
    const double convolutions = 1024.0 * 32 * 27 + 256.0 * 64 * 288 + 64.0 * 128 * 576 + 16.0 * 128 * 1152;
    const double all = 2 * 8 * (convolutions + 512.0 * 512 + 512 * 10);
    CHECK(forward == all);
    CHECK(backward == 2 * all - 2 * 8 * 1024.0 * 32 * 27);  // pixels need no gradient
  }
}

TEST_CASE("joined towers are trained together, and frozen ones pass on the gradients of waiting results") {
  const std::string freeze = GENERATE("none", "features");
  ModelDriver model(ddh_entry_cnn, small("two_stream", {{"model.freeze", freeze}}));
  fill_all(model, 1);
  model.train_step({3, 50, 7, 9});
  for (uint32_t i = 0; i < model.desc().n_params; ++i) {
    CAPTURE(model.name(i), freeze);
    const bool is_frozen = (model.desc().params[i]->attributes & DDH_PARAM_FROZEN) != 0;
    CHECK(is_frozen == (freeze == "features" && model.name(i).starts_with("mobilenet.")));
    if (!is_frozen) CHECK(norm(model.grad(i)) > 0);
  }
}

TEST_CASE("conv3d is torch's convolution over frames and image, with the pools that its frames allow") {
  ModelDriver model(ddh_entry_cnn, {{"model.network", "conv3d"},
                                    {"model.dataset", "moving_mnist"},
                                    {"model.widths", "[4, 6, 5]"},
                                    {"model.hidden", "8"},
                                    {"model.frames", "5"},
                                    {"model.image_size", "16"},
                                    {"model.channels", "3"},
                                    {"model.dropout", "0"}});
  fill_all(model, 1);
  const std::vector<float> pixels = golden_uni("pixels", 2 * 5 * 3 * 16 * 16);
  ddh_batch* batch = cnn_of(model).batch_of_pixels(pixels, {3, 1});
  model.forward(batch, 1);
  const std::vector<float> logits = logits_of(batch);
  const auto tensor = [&](const std::string& name) {
    return at::tensor(model.value(model.index(name))).view(model.shape(model.index(name)));
  };
  at::Tensor x = at::tensor(pixels).view({2, 5, 3, 16, 16}).transpose(1, 2);
  for (const std::string name : {"conv1", "conv2", "conv3"}) {  // 5 frames, 2, 1
    x = at::conv3d(x, tensor(name + ".weight"), tensor(name + ".bias"), at::IntArrayRef{1, 1, 1}, {1, 1, 1}).relu();
    const int64_t depth = x.size(2) > 1 ? 2 : 1;
    x = at::max_pool3d(x, {depth, 2, 2});
  }
  x = x.flatten(1);
  REQUIRE(x.size(1) == 5 * 1 * 2 * 2);
  x = at::linear(x, tensor("fc1.weight"), tensor("fc1.bias")).relu();
  x = at::linear(x, tensor("fc2.weight"), tensor("fc2.bias")).relu();
  x = at::linear(x, tensor("fc3.weight"), tensor("fc3.bias"));
  CHECK(largest_difference(logits, values_of(x.contiguous())) < 1e-5);
  model.discard();
  model.table().batch_destroy(model.inst(), batch);
}

TEST_CASE("pretrained_cnn_lstm has MobileNetV2's names, and a frozen trunk has no gradients") {
  ModelDriver model(ddh_entry_cnn, {{"model.network", "pretrained_cnn_lstm"},
                                    {"model.dataset", "moving_mnist"},
                                    {"model.lstm", "[6, 4]"},
                                    {"model.hidden", "8"},
                                    {"model.frames", "3"},
                                    {"model.image_size", "32"},
                                    {"model.channels", "3"},
                                    {"model.freeze", "features"}});
  const ModelDriver trunk(ddh_entry_cnn, small("mobilenet_v2", {}));
  for (size_t i = 0; i < trunk.desc().n_params; ++i) {
    if (trunk.name(i).starts_with("classifier")) continue;
    CAPTURE(trunk.name(i));
    CHECK(model.shape(model.index(trunk.name(i))) == trunk.shape(i));
  }
  fill_all(model, 1);
  auto batch = model.create_batch({3, 50});
  model.forward(batch.batch);
  model.backward(batch.batch, 1);
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    const bool is_frozen = (model.desc().params[i]->attributes & DDH_PARAM_FROZEN) != 0;
    CHECK(is_frozen == model.name(i).starts_with("features."));
    if (!is_frozen) CHECK(norm(model.grad(i)) > 0);
  }
  model.discard();
  model.destroy_batch(batch);
}

TEST_CASE("a network of images refuses videos, and a network of videos refuses images") {
  CHECK_THAT(sentence_of([] {
               const ModelDriver model(ddh_entry_cnn, tiny_lstm({{"model.dataset", "made_up"}}));
             }),
             Catch::Contains("cnn_lstm, pretrained_cnn_lstm and conv3d"));
  CHECK_THAT(sentence_of([] {
               const ModelDriver model(ddh_entry_cnn, tiny_cnn({{"model.dataset", "moving_mnist"}}));
             }),
             Catch::Contains("cnn_lstm, pretrained_cnn_lstm and conv3d"));
}

TEST_CASE("an impossible convolutional network is refused with a sentence") {
  const auto sentence = [](const ModelDriver::Options& more) {
    return sentence_of([&] { const ModelDriver model(ddh_entry_cnn, more); });
  };
  CHECK_THAT(sentence(tiny_cnn({{"model.image_size", "16"}})) + sentence(small("basic", {{"model.image_size", "20"}})),
             Catch::Contains("too small for 'conv3'") || Catch::Contains("too small for 'conv4'"));
  CHECK_THAT(sentence(small("vgg16", {{"model.batch_norm", "true"}})),
             Catch::Contains("model.batch_norm") && Catch::Contains("vgg16"));
  CHECK_THAT(sentence(small("resnet9", {{"model.freeze", "features"}})),
             Catch::Contains("model.freeze") && Catch::Contains("resnet9"));
  CHECK_THAT(sentence(small("vgg11", {{"model.image_size", "8"}})), Catch::Contains("nothing is left of 1 x 1 pixels"));
  CHECK_THAT(sentence(small("vgg16", {{"model.classes", "4"}})), Catch::Contains("model.classes=4"));
}
