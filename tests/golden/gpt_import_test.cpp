// SPDX-License-Identifier: Apache-2.0
//
// GPT-2's weights as others save them (tests/data/make_imports.py, from gpt2_tiny) through train.init_from's reader: a folder
// of transformers, whose linear weights are [in, out], one of them square; a checkpoint of nanoGPT, with [out, in] and the
// names of a compiled module. The four sizes have GPT-2's parameters.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "engine/services/tables/interfaces.hpp"
#include "engine/state/initialize.hpp"
#include "golden/compare.hpp"
#include "golden/gpt_fixture.hpp"
#include "plan/convert.hpp"

using namespace ddhost::test;

namespace {

// The reference's weights, from a file or folder of another program.
void read_all(ModelDriver& model, const ddhost::WeightsFiles& weights, const GoldenFile& golden) {
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    INFO(model.name(i));
    std::vector<float>& values = model.value(i);
    // In two ranges, as ranks read them.
    const size_t half = values.size() / 3;
    REQUIRE(weights.read_range(static_cast<int32_t>(i), 0, half, values.data()));
    REQUIRE(weights.read_range(static_cast<int32_t>(i), half, values.size() - half, values.data() + half));
    CHECK(values == from_hf(model.name(i), model.shape(i), golden.at("w." + model.name(i)).f32()));
  }
}

void check_logits(ModelDriver& model, const GoldenFile& golden, const std::string& expected) {
  ddh_batch* batch = gpt_of(model).batch_of_ids(golden.at("input.ids").i64(), shifted(golden.at("labels").i64(), 2), 2);
  model.forward(batch);
  CHECK(largest_difference(values_of(gpt_of(model).logits(0)), golden.at(expected).f32()) < 1e-5);
  model.discard();
  model.table().batch_destroy(model.inst(), batch);
}

}  // namespace

TEST_CASE("a GPT-2 folder of transformers has the reference's logits") {
  const auto folder = find_data("imports/hf_gpt2/model.safetensors");
  const auto golden = find_data("golden/gpt2_tiny.safetensors");
  if (!folder || !golden) return;
  const GoldenFile file = read_safetensors(*golden);
  const SmallText text("gpt2-import");
  ModelDriver model(ddh_entry_gpt, tiny_gpt2(text, "gelu_tanh", "aten"));
  const std::string path = std::filesystem::path(*folder).parent_path().string();
  const ddhost::WeightsFiles weights(model.desc(), {{path, ""}});
  read_all(model, weights, file);
  REQUIRE(weights.notes().size() == 1);
  CHECK_THAT(weights.notes().front(), Catch::Contains("transposed"));
  check_logits(model, file, "logits");
}

TEST_CASE("a GPT of nanoGPT's checkpoint has the reference's logits, with the exact GELU") {
  const auto path = find_data("imports/torch/nanogpt_gpt.pt");
  const auto golden = find_data("golden/gpt2_tiny.safetensors");
  if (!path || !golden) return;
  const GoldenFile file = read_safetensors(*golden);
  const SmallText text("nanogpt-import");
  ModelDriver model(ddh_entry_gpt, tiny_gpt2(text, "gelu", "aten"));
  const ddhost::Registry registry(&ddhost::host_interface, DDHOST_BUILD_DIR);
  const ddhost::ConvertRequest request{
      "auto", "", true, {uint64_t{1} << 30, "memory", std::chrono::minutes(1), "call"}};
  std::vector<std::string> notes;
  const auto converted = ddhost::convert_foreign(*path, request, registry, notes);
  REQUIRE(converted);
  ddhost::InitFile entry{*path, ""};
  entry.converted = converted->path();
  const ddhost::WeightsFiles weights(model.desc(), {entry});
  read_all(model, weights, file);
  for (const std::string& note : weights.notes()) CHECK_THAT(note, !Catch::Contains("transposed"));
  check_logits(model, file, "logits_gelu_erf");
}

TEST_CASE("the four sizes have GPT-2's number of parameters, and the smallest its names and shapes") {
  const auto path = find_data("golden/manifest_gpt2.json");
  if (!path) return;
  const nlohmann::json manifest = nlohmann::json::parse(std::ifstream(*path));
  const SmallText text("gpt2-sizes", std::string(2000, 'a') + "bcd");
  for (const std::string size : {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"}) {
    CAPTURE(size);
    // Only the description is needed: no memory for the parameters.
    FakeHost host({{"model.size", size}, {"model.vocab", "50257"}, {"data.path", text.path()}});
    const ddh_module* module = nullptr;
    ddh::call(ddh_entry_gpt, host.get(), &module);
    for (const auto& [key, value] : std::map<std::string, std::string>{{"data.val_path", ""},
                                                                       {"data.val_fraction", "0"},
                                                                       {"data.micro_batch", "1"},
                                                                       {"run.seed", "1"},
                                                                       {"precision.compute", "fp32"}})
      host.set_default(key, value);
    host.add_defaults("model", module->desc[0]->config_schema);
    const ddh_create create{sizeof(ddh_create), 0, host.get(), module->desc[0]->id, "model"};
    ddh_inst* inst = nullptr;
    ddh::call(module->create, &create, &inst);
    const ddh_model_desc* desc = nullptr;
    ddh::call(static_cast<const ddh_model_api*>(module->get_interface(inst, DDH_MODEL_IFACE))->describe, inst, &desc);
    uint64_t numel = 0;
    std::map<std::string, std::vector<int64_t>> found, expected;
    for (uint32_t i = 0; i < desc->n_params; ++i) {
      const ddh_param_desc& p = *desc->params[i];
      numel += p.numel;
      found[p.name] = {p.shape, p.shape + p.n_dims};
      if (is_transposed(p.name)) std::swap(found[p.name][0], found[p.name][1]);
    }
    std::string key = size;
    std::replace(key.begin(), key.end(), '-', '_');
    CHECK(numel == manifest.at(key).at("params").get<uint64_t>());
    for (const auto& entry : manifest.at("gpt2_names"))
      expected[entry.at(0).get<std::string>()] = entry.at(1).get<std::vector<int64_t>>();
    if (size == "gpt2") CHECK(found == expected);
    module->destroy(inst);
  }
}
