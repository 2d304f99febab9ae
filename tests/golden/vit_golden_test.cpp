// SPDX-License-Identifier: Apache-2.0
//
// The Vision Transformer against reference tensors of torchvision, under the names of Hugging Face and of torchvision.
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fixtures/harness/golden_data.hpp"
#include "fixtures/harness/safetensors.hpp"
#include "golden/vit_fixture.hpp"
#include "golden/ways.hpp"

using namespace ddhost::test;

namespace {

void load_weights(ModelDriver& model, const GoldenFile& file) {
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    const GoldenTensor& tensor = file.at("w." + model.name(i));
    REQUIRE(tensor.shape == model.shape(i));
    model.value(i) = tensor.f32();
  }
}

uint64_t numel_of(const ModelDriver& model) {
  uint64_t numel = 0;
  for (uint32_t i = 0; i < model.desc().n_params; ++i) numel += model.desc().params[i]->numel;
  return numel;
}

}  // namespace

TEST_CASE("a small Vision Transformer has the reference's logits, loss and gradients under both names") {
  const std::string names = GENERATE("hf", "tv");
  const auto path = find_data("golden/vit_tiny_" + names + ".safetensors");
  if (!path) return;
  const GoldenFile file = read_safetensors(*path);
  const std::string way = GENERATE(from_range(ways()));
  const bool move_params = GENERATE(false, true);
  const bool recompute = GENERATE(false, true);
  CAPTURE(names, way, move_params, recompute);
  ModelDriver model(ddh_entry_vit, computed_by(way, tiny_vit(names, "auto")));
  model.move_params = move_params;
  model.recompute = recompute;
  REQUIRE(numel_of(model) == file.metadata.at("params").get<uint64_t>());
  load_weights(model, file);

  const std::vector<int64_t> labels = file.at("labels").i64();
  ddh_batch* batch = vit_of(model).batch_of_pixels(file.at("input.pixels").f32(), labels);
  model.forward(batch);
  REQUIRE(largest_difference(values_of(vit_of(model).logits(0)), file.at("logits").f32()) < 1e-5);
  const auto [sum, count] = model.metric();
  REQUIRE(count == static_cast<double>(labels.size()));
  REQUIRE(sum / count == Approx(static_cast<double>(file.at("loss").f32()[0])).epsilon(1e-6));

  model.backward(batch, 1 / count);
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    CAPTURE(model.name(i));
    REQUIRE(largest_difference(model.grad(i), file.at("g." + model.name(i)).f32()) < 1e-5);
  }
  model.discard();
  model.table().batch_destroy(model.inst(), batch);
  REQUIRE(model.host().bytes(DDH_TAG_ACT) == 0);
  REQUIRE(model.host().bytes(DDH_TAG_DATA) == 0);
}

TEST_CASE("the eps of layer norms follows from model.names, unless it is given") {
  const auto path = find_data("golden/vit_tiny_hf.safetensors");
  if (!path) return;
  const GoldenFile file = read_safetensors(*path);
  const auto logits = [&](const std::string& eps) {
    ModelDriver::Options options = tiny_vit("hf", "aten");
    options["model.layer_norm_eps"] = eps;
    ModelDriver model(ddh_entry_vit, options);
    load_weights(model, file);
    ddh_batch* batch = vit_of(model).batch_of_pixels(file.at("input.pixels").f32(), file.at("labels").i64());
    model.forward(batch);
    const std::vector<float> out = values_of(vit_of(model).logits(0));
    model.discard();
    model.table().batch_destroy(model.inst(), batch);
    return out;
  };
  CHECK(logits("0.0") == logits("1e-12"));
  CHECK(largest_difference(logits("0.1"), file.at("logits").f32()) > 1e-3);
}

TEST_CASE("ViT-B/16 has torchvision's logits, loss and gradient norms") {
  const auto path = find_data("golden/tv_vit_b_16.safetensors");
  if (!path) return;
  const GoldenFile file = read_safetensors(*path);
  ModelDriver model(ddh_entry_vit, {{"model.size", "B"},
                                    {"model.names", "tv"},
                                    {"model.dataset", "made_up"},
                                    {"model.channels", "3"},
                                    {"model.classes", "1000"},
                                    {"model.matmul", "auto"}});
  REQUIRE(numel_of(model) == file.metadata.at("params").get<uint64_t>());
  fill(model, file.metadata.at("gain").get<double>());
  const auto check_logits = [&](const std::string& part) {
    const std::vector<float> expected = file.at(part + ".logits").f32();
    CHECK(largest_difference(values_of(vit_of(model).logits(0)), expected) <= 1e-4 * deviation(expected) + 1e-5);
  };
  const std::vector<int64_t> labels = file.at("train.labels").i64();
  for (const std::string part : {"eval", "train"}) {
    ddh_batch* batch = vit_of(model).batch_of_pixels(golden_uni("input." + part, 2 * 3 * 224 * 224), labels);
    model.forward(batch, part == "eval" ? 1 : 0);
    check_logits(part);
    if (part == "train") {
      const auto [sum, count] = model.metric();
      CHECK(sum / count == Approx(static_cast<double>(file.at("train.loss").f32()[0])).epsilon(1e-5));
      model.backward(batch, 1 / count);
    }
    model.discard();
    model.table().batch_destroy(model.inst(), batch);
  }
  const auto order = file.metadata.at("param_order").get<std::vector<std::string>>();
  const std::vector<float> norms = file.at("train.grad_norm").f32();
  REQUIRE(order.size() == model.desc().n_params);
  for (size_t i = 0; i < order.size(); ++i) {
    CAPTURE(order[i]);
    const auto expected = static_cast<double>(norms[i]);
    if (expected > 1e-4) CHECK(norm(model.grad(order[i])) == Approx(expected).epsilon(1e-3));
  }
}

TEST_CASE("the sizes have the published number of parameters, with every value of model.names") {
  const auto path = find_data("golden/manifest_vit.json");
  if (!path) return;
  const nlohmann::json manifest = nlohmann::json::parse(std::ifstream(*path));
  const std::map<std::string, std::string> sizes = {{"Ti", "tiny"}, {"S", "small"},  {"B", "base"},
                                                    {"L", "large"}, {"H16", "huge"}, {"H", "huge14"}};
  for (const auto& [size, key] : sizes) {
    for (const std::string classes : {"10", "1000"}) {
      for (const std::string names : {"hf", "tv", "timm"}) {
        // Only the description is needed: no memory for the parameters.
        ddhost::test::FakeHost host({{"model.size", size},
                                     {"model.names", names},
                                     {"model.dataset", "made_up"},
                                     {"model.channels", "3"},
                                     {"model.classes", classes}});
        const ddh_module* module = nullptr;
        ddh::call(ddh_entry_vit, host.get(), &module);
        host.set_default("data.path", "");
        host.set_default("run.seed", "1");
        host.set_default("precision.compute", "fp32");
        host.add_defaults("model", module->desc[0]->config_schema);
        const ddh_create create{sizeof(ddh_create), 0, host.get(), module->desc[0]->id, "model"};
        ddh_inst* inst = nullptr;
        ddh::call(module->create, &create, &inst);
        const ddh_model_desc* desc = nullptr;
        ddh::call(static_cast<const ddh_model_api*>(module->get_interface(inst, DDH_MODEL_IFACE))->describe, inst,
                  &desc);
        uint64_t numel = 0;
        for (uint32_t i = 0; i < desc->n_params; ++i) numel += desc->params[i]->numel;
        CAPTURE(size, classes, names);
        CHECK(numel == manifest.at(key).at("params_" + classes).get<uint64_t>());
        module->destroy(inst);
      }
    }
  }
}
