// SPDX-License-Identifier: Apache-2.0
//
// The sizes, the estimated costs and the names of a CAD-MLLM.
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "fixtures/harness/counted_flops.hpp"
#include "golden/cad_fixture.hpp"

using namespace ddhost::test;

namespace {

// Sizes just below those of the allocator's classes, which would waste up to a quarter: 2,520 to 2,562 rows of the stages
// have tensors of 96 to 99 % of 7/4 and 5/2 MiB, and of their halves and quarters.
ModelDriver::Options wide(const std::string& compute) {
  return {{"precision.compute", compute}, {"model.width", "176"},          {"model.heads", "8"},
          {"model.kv_heads", "2"},        {"model.head_dim", "22"},        {"model.mlp_width", "252"},
          {"model.lora_rank", "8"},       {"model.projector_hidden", "96"}};
}

// 21 samples of 121 or 122 tokens, or 20 of 126.
std::vector<int64_t> samples_of(int32_t stage) {
  std::vector<int64_t> samples(stage == 2 ? 20 : 21);
  std::iota(samples.begin(), samples.end(), 0);
  return samples;
}

// The description alone: no memory for the parameters.
void with_description(const ModelDriver::Options& options, const std::function<void(const ddh_model_desc&)>& look) {
  FakeHost host(options);
  const ddh_module* module = nullptr;
  ddh::call(ddh_entry_cad_mllm, host.get(), &module);
  for (const char* key : {"data.path", "data.val_path"}) host.set_default(key, "");
  for (const char* key : {"run.seed", "data.dummy_samples"}) host.set_default(key, "5");
  host.set_default("precision.compute", "bf16");
  host.add_defaults("model", module->desc[0]->config_schema);
  const ddh_create create{sizeof(ddh_create), 0, host.get(), module->desc[0]->id, "model"};
  ddh_inst* inst = nullptr;
  ddh::call(module->create, &create, &inst);
  const ddh_model_desc* desc = nullptr;
  ddh::call(static_cast<const ddh_model_api*>(module->get_interface(inst, DDH_MODEL_IFACE))->describe, inst, &desc);
  look(*desc);
  module->destroy(inst);
}

}  // namespace

TEST_CASE("a CAD-MLLM estimates the products that it runs, in every stage") {
  const int32_t stage = GENERATE(0, 1, 2);
  CAPTURE(stage);
  ModelDriver::Options options = wide("fp32");
  options["model.matmul"] = "aten";  // whose products are counted
  ModelDriver model(ddh_entry_cad_mllm, options);
  fill_cad(model);
  const std::vector<int64_t> samples = samples_of(stage);
  const ddh_estimate expected = model.estimate(stage, static_cast<uint32_t>(samples.size()));
  auto batch = model.create_batch(samples, stage);
  const CountedFlops flops;
  model.forward(batch.batch, stage);
  CHECK(CountedFlops::total() == Approx(expected.forward_flops).epsilon(0.02));
  CountedFlops::total() = 0;
  model.backward(batch.batch, 1, stage);
  CHECK(CountedFlops::total() == Approx(expected.backward_flops).epsilon(0.02));
  model.discard();
  model.destroy_batch(batch);
}

TEST_CASE("a CAD-MLLM estimates what it keeps for the backward, in every stage") {
  const int32_t stage = GENERATE(0, 1, 2);
  const std::string compute = GENERATE("fp32", "bf16"), dropout = GENERATE("0.0", "0.1");
  CAPTURE(stage, compute, dropout);
  ModelDriver::Options options = wide(compute);
  options["model.lora_dropout"] = options["model.projector_dropout"] = dropout;
  ModelDriver model(ddh_entry_cad_mllm, options);
  fill_cad(model);
  const std::vector<int64_t> samples = samples_of(stage);
  auto batch = model.create_batch(samples, stage);
  CHECK(batch.info.items <= 2562);
  model.forward(batch.batch, stage);
  const auto kept = static_cast<double>(model.host().bytes(DDH_TAG_ACT));
  const auto expected =
      static_cast<double>(model.estimate(stage, static_cast<uint32_t>(samples.size())).activation_bytes);
  CHECK(kept == Approx(expected).epsilon(0.03));
  model.discard();
  model.destroy_batch(batch);
}

TEST_CASE("the largest size has as many parameters as its parts are published with") {
  with_description({{"model.size", "8b"}}, [](const ddh_model_desc& desc) {
    std::map<std::string, uint64_t> numel;
    for (uint32_t i = 0; i < desc.n_params; ++i) {
      const std::string name = desc.params[i]->name;
      const std::string part = is_adapter(name) ? "adapters" : name.substr(0, name.find('.'));
      numel[part] += desc.params[i]->numel;
    }
    CHECK(numel["llm"] == 8190735360);
    CHECK(numel["adapters"] == 87293952);
    CHECK(numel["image_projector"] == 10491904);
    CHECK(numel["point_projector"] == 9967616);
  });
}

TEST_CASE("the language model has PEFT's names on demand, and nothing else changes") {
  std::vector<std::string> plain, peft;
  const auto names_into = [](std::vector<std::string>& names) {
    return [&names](const ddh_model_desc& desc) {
      for (uint32_t i = 0; i < desc.n_params; ++i) names.emplace_back(desc.params[i]->name);
    };
  };
  with_description({}, names_into(plain));
  with_description({{"model.names", "peft"}}, names_into(peft));
  REQUIRE(plain.size() == peft.size());
  const std::string head = "llm.base_model.model.";
  size_t adapted = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    CAPTURE(plain[i], peft[i]);
    if (!plain[i].starts_with("llm.")) {
      CHECK(peft[i] == plain[i]);
    } else if (plain[i].ends_with("q_proj.weight")) {
      CHECK(peft[i] == head + plain[i].substr(4, plain[i].size() - 11) + ".base_layer.weight");
      ++adapted;
    } else if (plain[i].ends_with("q_proj.lora_A.weight")) {
      CHECK(peft[i] == head + plain[i].substr(4, plain[i].size() - 11) + ".default.weight");
      ++adapted;
    } else if (plain[i].ends_with("norm.weight") || plain[i].ends_with("embed_tokens.weight")) {
      CHECK(peft[i] == head + plain[i].substr(4));
    }
  }
  CHECK(adapted == 4);
}
