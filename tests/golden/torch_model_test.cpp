// SPDX-License-Identifier: Apache-2.0
//
// The base of autograd models against one graph over the whole model.
#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "ddh/sdk/torch/prepare.hpp"
#include "fixtures/harness/golden_fill.hpp"
#include "fixtures/harness/model_driver.hpp"
#include "fixtures/harness/throws.hpp"

DDH_EXTERN_C ddh_rc ddh_entry_tiny_torch(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;
DDH_EXTERN_C ddh_rc ddh_entry_tiny_cnn(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;

using namespace ddhost::test;

namespace {

const std::vector<int64_t> kSamples = {3, 17, 40, 3, 66};

void fill(ModelDriver& model) {
  for (size_t i = 0; i < model.desc().n_params; ++i) model.value(i) = golden_fill(model.name(i), model.shape(i));
}

std::vector<float> values_of(const at::Tensor& t) {
  return {t.const_data_ptr<float>(), t.const_data_ptr<float>() + t.numel()};
}

// Loss and gradients of e, w, b by plain autograd over copies of the model's values.
std::map<std::string, std::vector<float>> reference(ModelDriver& model) {
  std::map<std::string, at::Tensor> p;
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    const auto shape = model.shape(i);
    p[model.name(i)] = at::from_blob(model.value(i).data(), shape, at::kFloat).clone().set_requires_grad(true);
  }
  std::vector<int64_t> tokens, targets;
  for (const int64_t s : kSamples) tokens.push_back(s % 7), targets.push_back(s / 7 % 7);
  const at::Tensor rows = at::embedding(p["e"], at::tensor(tokens, at::kLong)), x = rows.mul(rows);
  const at::Tensor y = at::tanh(at::linear(x, p["w"], p["b"])).mul(p["gain"]);
  const at::Tensor loss = at::cross_entropy_loss(at::linear(y, p["e"]), at::tensor(targets, at::kLong), {}, 2);
  loss.div(static_cast<double>(kSamples.size())).backward();
  std::map<std::string, std::vector<float>> out = {{"loss", {loss.item<float>()}}};
  for (const char* name : {"e", "w", "b"}) out[name] = values_of(p[name].grad());
  return out;
}

}  // namespace

TEST_CASE("a model in units has the gradients of the whole graph, also if its parameters move") {
  const bool moves = GENERATE(false, true), recompute = GENERATE(false, true);
  CAPTURE(moves, recompute);
  ModelDriver model(ddh_entry_tiny_torch, {});
  model.move_params = moves;
  model.recompute = recompute;
  fill(model);
  const auto expected = reference(model);
  const double loss = model.train_step(kSamples);
  REQUIRE(loss * static_cast<double>(kSamples.size()) == Approx(expected.at("loss")[0]).epsilon(1e-6));
  for (const char* name : {"w", "b"}) {
    const auto& grad = model.grad(name);
    for (size_t k = 0; k < grad.size(); ++k) REQUIRE(grad[k] == Approx(expected.at(name)[k]).margin(1e-7));
  }
  for (size_t k = 0; k < 35; ++k) REQUIRE(model.grad("e")[k] == Approx(expected.at("e")[k]).margin(1e-7));
  REQUIRE(model.grad("unused") == std::vector<float>(3, 0.0F));
  REQUIRE(std::isnan(model.grad("gain")[0]));  // frozen: nothing is written
  REQUIRE(model.host().bytes(DDH_TAG_ACT) == 0);
}

TEST_CASE("moving parameters and recompute change no bit of a gradient, in any dtype, with dropout") {
  const std::string compute = GENERATE("fp32", "bf16", "fp16");
  const auto gradients = [&](bool moves, bool recompute) {
    ModelDriver model(ddh_entry_tiny_torch, {{"precision.compute", compute}, {"model.dropout", "0.3"}});
    model.move_params = moves;
    model.recompute = recompute;
    fill(model);
    model.train_step(kSamples);
    return std::vector<std::vector<float>>{model.grad("e"), model.grad("w"), model.grad("b")};
  };
  const auto plain = gradients(false, false);
  CHECK(gradients(true, false) == plain);
  CHECK(gradients(true, true) == plain);
  CHECK(gradients(false, true) == plain);
}

TEST_CASE("16-bit parameters have gradients of fp32 within roundings, and a second micro-batch adds them once") {
  const std::string compute = GENERATE("bf16", "fp16");
  ModelDriver model(ddh_entry_tiny_torch, {{"precision.compute", compute}});
  fill(model);
  const auto expected = reference(model);
  model.train_step(kSamples);
  const double roundoff = compute == "bf16" ? 0x1p-8 : 0x1p-11;
  for (const char* name : {"w", "b"}) {
    double difference = 0, length = 0;
    for (size_t k = 0; k < model.grad(name).size(); ++k) {
      const auto got = static_cast<double>(model.grad(name)[k]), wanted = static_cast<double>(expected.at(name)[k]);
      difference += (got - wanted) * (got - wanted), length += wanted * wanted;
    }
    CAPTURE(compute, name);
    CHECK(std::sqrt(difference / length) < 4 * roundoff);
    CHECK(difference > 0);
  }
  const auto once = model.grad("w");
  auto a = model.create_batch(kSamples, 0, 1, 0), b = model.create_batch(kSamples, 0, 1, 1);
  for (int32_t m = 0; m < 2; ++m) {
    const auto& batch = m == 0 ? a : b;
    model.forward(batch.batch, 0, 1, m);
    model.backward(batch.batch, 1.0 / static_cast<double>(kSamples.size()), 0, 1, m);
    model.discard(m);
  }
  for (size_t k = 0; k < once.size(); ++k) REQUIRE(model.grad("w")[k] == once[k] + once[k]);
  model.destroy_batch(a), model.destroy_batch(b);
}

TEST_CASE("a weight in blocks that is used three times has its whole gradient, and the same bits at once and later") {
  const char* const compute = GENERATE("fp32", "bf16");
  const bool recompute = GENERATE(false, true);
  const bool many = GENERATE(false, true);  // samples: then the gradient is smaller than what it is made of
  CAPTURE(compute, recompute, many);
  std::vector<int64_t> samples = kSamples;
  for (int64_t i = 0; many && i < 20; ++i) samples.push_back(3 * i);
  const auto gradients = [&](bool in_blocks, const char* by_autograd) {
    ModelDriver model(ddh_entry_tiny_torch,
                      {{"model.uses", "3"}, {"model.by_autograd", by_autograd}, {"precision.compute", compute}});
    model.in_blocks = in_blocks;
    model.recompute = recompute;
    fill(model);
    for (const int32_t micro_batch : {0, 1}) {  // the second adds
      ModelDriver::Batch batch = model.create_batch(samples, 0, 1, micro_batch);
      model.forward(batch.batch, 0, 1, micro_batch);
      model.backward(batch.batch, 0.5, 0, 1, micro_batch);
      model.discard(micro_batch);
      model.destroy_batch(batch);
    }
    std::vector<std::vector<float>> out;
    for (const char* name : {"e", "w", "b", "unused"}) out.push_back(model.grad(name));
    return out;
  };
  const auto at_once = gradients(false, "false"), later = gradients(true, "false"), plain = gradients(false, "true");
  CHECK(later == at_once);
  REQUIRE(at_once[1].size() == 256);
  float largest = 0;
  for (const float g : plain[1]) largest = std::max(largest, std::abs(g));
  REQUIRE(largest > 0.01F);
  const double margin = largest * (compute == std::string("fp32") ? 1e-5 : 0.05);
  for (size_t k = 0; k < plain[1].size(); ++k) CHECK(at_once[1][k] == Approx(plain[1][k]).margin(margin));
}

TEST_CASE("a forward that is recomputed or has no backward keeps less memory") {
  const auto kept = [](bool recompute, int32_t program) {
    ModelDriver model(ddh_entry_tiny_torch, {});
    model.recompute = recompute;
    fill(model);
    auto batch = model.create_batch(kSamples, program);
    model.forward(batch.batch, program);
    const int64_t bytes = model.host().bytes(DDH_TAG_ACT);
    model.discard();
    model.destroy_batch(batch);
    return bytes;
  };
  const int64_t all = kept(false, 0), inputs_alone = kept(true, 0), evaluation = kept(false, 1), tuned = kept(false, 2);
  CHECK(10 * inputs_alone < 7 * all);
  CHECK(tuned < all);
  CHECK(evaluation < inputs_alone);
}

TEST_CASE("frozen first and last units of a program get no gradients and do not change those between them") {
  const bool recompute = GENERATE(false, true);
  ModelDriver model(ddh_entry_tiny_torch, {});
  model.recompute = recompute;
  fill(model);
  model.train_step(kSamples);
  const auto w = model.grad("w"), b = model.grad("b");
  constexpr int32_t kTuned = 2;
  auto batch = model.create_batch(kSamples, kTuned);
  model.forward(batch.batch, kTuned);
  model.backward(batch.batch, 1 / batch.info.loss_count, kTuned);
  CHECK(model.grad("w") == w);
  CHECK(model.grad("b") == b);
  CHECK(std::isnan(model.grad("e")[0]));
  model.discard();
  model.destroy_batch(batch);
  CHECK(model.host().bytes(DDH_TAG_ACT) == 0);
}

TEST_CASE("dropout depends on the micro-batch's index over all ranks, not on its index on the rank") {
  const auto loss = [](int32_t micro_batch, int64_t global) {
    ModelDriver model(ddh_entry_tiny_torch, {{"model.dropout", "0.3"}});
    model.global_micro_batch = global;
    fill(model);
    auto batch = model.create_batch(kSamples, 0, 1, micro_batch);
    model.forward(batch.batch, 0, 1, micro_batch);
    const double sum = model.metric(0, micro_batch).first;
    model.discard(micro_batch);
    model.destroy_batch(batch);
    return sum;
  };
  CHECK(loss(0, 2) == loss(2, 2));
  CHECK(loss(0, 2) == loss(1, 2));
  CHECK(loss(0, 1) != loss(0, 2));
}

TEST_CASE("a batch norm contributes momentum times its statistics, once, and never writes its buffers") {
  ModelDriver model(ddh_entry_tiny_cnn, {});
  model.recompute = true;
  fill(model);
  const ddh_model_desc& desc = model.desc();
  REQUIRE(desc.n_buffers == 6);
  const auto contribution = [&](uint32_t i, std::vector<float>& out) {
    int32_t given = 0;
    out.assign(desc.buffers[i]->numel, -1);
    ddh::call(model.table().contribution, model.inst(), i, 0, 0, out.data(), &given);
    return given != 0;
  };
  auto batch = model.create_batch({1, 2, 3, 4});
  model.forward(batch.batch);
  std::vector<float> mean, variance, again;
  REQUIRE(contribution(0, mean));
  REQUIRE(contribution(1, variance));
  CHECK(std::string(desc.buffers[0]->name) == "blocks.0.norm.running_mean");
  CHECK(desc.buffers[0]->fold_decay == 0.9);
  int32_t given = 0;
  int64_t batches = 0;
  ddh::call(model.table().contribution, model.inst(), 2U, 0, 0, static_cast<void*>(&batches), &given);
  CHECK((given == 1 && batches == 1));
  model.backward(batch.batch, 1);  // every unit runs again
  REQUIRE(contribution(0, again));
  CHECK(again == mean);
  for (const float v : variance) CHECK(v > 0);
  for (uint32_t i = 0; i < 4; ++i) CHECK(static_cast<const float*>(desc.buffers[0]->data)[i] == 0);
  model.discard();

  // With these running statistics an evaluation of the same images differs from one without.
  const auto evaluated = [&] {
    model.forward(batch.batch, 1);
    const double sum = model.metric(1).first;
    const bool gives = contribution(0, again);
    CHECK_FALSE(gives);
    model.discard();
    return sum;
  };
  const double before = evaluated();
  for (uint32_t i = 0; i < 4; ++i) {
    static_cast<float*>(desc.buffers[0]->data)[i] = 10 * mean[i];
    static_cast<float*>(desc.buffers[1]->data)[i] = 10 * variance[i];
  }
  CHECK(evaluated() != before);
  model.destroy_batch(batch);
}

TEST_CASE("the activation allocator keeps its pages and counts what a rank holds") {
  ddh::prepare_torch();
  FakeHost fake({});
  const ddh::Host host(fake.get());
  c10::Allocator& allocator = *c10::GetCPUAllocator();
  for (const size_t bytes : {size_t{1}, size_t{100}, size_t{4096}, size_t{3} << 20, size_t{40} << 20}) {
    CAPTURE(bytes);
    const void* first = nullptr;
    {
      const ddh::ActivationScope scope(host);
      c10::DataPtr block = allocator.allocate(bytes);
      first = block.get();
      REQUIRE(reinterpret_cast<uintptr_t>(first) % 64 == 0);
      std::memset(block.get(), 1, bytes);
    }
    REQUIRE(fake.bytes(DDH_TAG_ACT) == 0);
    REQUIRE(fake.peak_bytes(DDH_TAG_ACT) >= (bytes < 64 * 1024 ? 0 : static_cast<int64_t>(bytes)));
    void* raw = allocator.raw_allocate(bytes);  // LibTorch's oneDNN operators take memory this way
    REQUIRE(raw == first);
    allocator.raw_deallocate(raw);
  }
  REQUIRE(allocator.allocate(0).get() == nullptr);
}

TEST_CASE("an autograd model that reports more sums than counts is refused") {
  ModelDriver model(ddh_entry_tiny_torch, {{"model.sums", "2"}});
  fill(model);
  REQUIRE_THAT(sentence_of([&] { (void)model.train_step(kSamples); }),
               Catch::Contains("2 sums and 1 counts; give one count for each sum"));
}

TEST_CASE("an autograd model takes an empty batch and evaluates without a graph") {
  ModelDriver model(ddh_entry_tiny_torch, {});
  fill(model);
  auto empty = model.create_batch({});
  model.forward(empty.batch);
  model.backward(empty.batch, 1);
  REQUIRE(model.metric() == std::pair<double, double>(0, 0));
  for (const char* name : {"e", "w", "b", "unused"})
    REQUIRE(model.grad(name) == std::vector<float>(model.grad(name).size(), 0.0F));
  model.discard();
  model.destroy_batch(empty);

  auto batch = model.create_batch(kSamples, 1);
  model.forward(batch.batch, 1);
  REQUIRE(model.metric(1).first == Approx(reference(model).at("loss")[0]).epsilon(1e-6));
  model.discard();
  model.destroy_batch(batch);
  REQUIRE(model.host().bytes(DDH_TAG_ACT) == 0);
}
