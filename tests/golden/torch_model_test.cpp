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

#include "ddh/sdk/torch/activations.hpp"
#include "support/golden_fill.hpp"
#include "support/model_driver.hpp"

DDH_EXTERN_C ddh_rc ddh_entry_tiny_torch(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;

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
  const at::Tensor x = at::embedding(p["e"], at::tensor(tokens, at::kLong));
  const at::Tensor y = at::tanh(at::linear(x, p["w"], p["b"])).mul(p["gain"]);
  const at::Tensor loss = at::cross_entropy_loss(at::linear(y, p["e"]), at::tensor(targets, at::kLong), {}, 2);
  loss.div(static_cast<double>(kSamples.size())).backward();
  std::map<std::string, std::vector<float>> out = {{"loss", {loss.item<float>()}}};
  for (const char* name : {"e", "w", "b"}) out[name] = values_of(p[name].grad());
  return out;
}

}  // namespace

TEST_CASE("a model cut into units has the gradients of the whole graph, wherever its parameters move") {
  const bool moves = GENERATE(false, true), host_recomputes = GENERATE(false, true);
  const std::string recompute = GENERATE("false", "true");
  CAPTURE(moves, host_recomputes, recompute);
  ModelDriver model(ddh_entry_tiny_torch, {{"model.recompute", recompute}});
  model.move_params = moves;
  model.recompute = host_recomputes;
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

TEST_CASE("moving parameters and recompute change no bit of a gradient") {
  const auto gradients = [](bool moves, const char* recompute) {
    ModelDriver model(ddh_entry_tiny_torch, {{"model.recompute", recompute}});
    model.move_params = moves;
    fill(model);
    model.train_step(kSamples);
    return std::vector<std::vector<float>>{model.grad("e"), model.grad("w"), model.grad("b")};
  };
  const auto plain = gradients(false, "false");
  REQUIRE(gradients(true, "false") == plain);
  REQUIRE(gradients(true, "true") == plain);
}

TEST_CASE("the activation allocator keeps its pages and counts what a rank holds") {
  ddh::ActivationAllocator::install();
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
