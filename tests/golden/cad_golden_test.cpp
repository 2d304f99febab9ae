// SPDX-License-Identifier: Apache-2.0
//
// CAD-MLLM against reference tensors, in the three stages of its curriculum.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "fixtures/harness/golden_data.hpp"
#include "fixtures/harness/safetensors.hpp"
#include "fixtures/harness/seen_inputs.hpp"
#include "golden/cad_fixture.hpp"

using namespace ddhost::test;

namespace {

void load_weights(ModelDriver& model, const GoldenFile& file) {
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    CAPTURE(model.name(i));
    const GoldenTensor& tensor = file.at("w." + model.name(i));
    REQUIRE(tensor.shape == model.shape(i));
    model.value(i) = tensor.f32();
  }
}

ddh_batch* reference_batch(ModelDriver& model, const GoldenFile& file, int32_t stage) {
  return cad_of(model).batch_of(stage, file.at("input.ids").shape[0], file.at("input.ids").i64(),
                                file.at("labels").i64(), file.at("input.pixels").f32(), file.at("input.points").f32());
}

// Logits of the rows that are no padding. Padded rows attend to padding here, and nothing is predicted from them.
void check_logits(const std::vector<float>& ours, const GoldenTensor& expected, const std::vector<int64_t>& ids) {
  const int64_t B = expected.shape[0], tokens = expected.shape[1], V = expected.shape[2];
  const int64_t T = static_cast<int64_t>(ids.size()) / B;
  const std::vector<float> theirs = expected.f32();
  REQUIRE(ours.size() == theirs.size());
  int64_t compared = 0;
  for (int64_t row = 0; row < B * tokens; ++row) {
    const int64_t t = row % tokens - (tokens - T);
    if (t >= 0 && ids[static_cast<size_t>(row / tokens * T + t)] == 256) continue;
    const auto part = [&](const std::vector<float>& all) {
      return std::vector<float>(all.begin() + row * V, all.begin() + (row + 1) * V);
    };
    REQUIRE(largest_difference(part(ours), part(theirs)) <= 2e-5 * deviation(theirs) + 1e-5);  // fp32 rounding
    ++compared;
  }
  CHECK(compared > B * (tokens - T) + B);
}

// Of an encoder: no other linear layer than its projector takes a tensor of this shape.
void check_features(const GoldenTensor& expected) {
  const std::vector<std::vector<float>> found = SeenInputs::of_sizes(expected.shape);
  REQUIRE(found.size() == 1);
  REQUIRE(largest_difference(found[0], expected.f32()) < 1e-5);
}

}  // namespace

TEST_CASE("a small CAD-MLLM has the reference's features, logits, loss and gradients in every stage") {
  const auto path = find_data("golden/cad_mllm_tiny.safetensors");
  if (!path) return;
  const GoldenFile file = read_safetensors(*path);
  const int32_t stage = GENERATE(0, 1, 2);
  const bool move_params = GENERATE(false, true);
  const bool recompute = GENERATE(false, true);
  const std::string operators = GENERATE("auto", "torch");
  CAPTURE(stage, move_params, recompute, operators);
  ModelDriver model(ddh_entry_cad_mllm, {{"model.operators", operators}});
  model.move_params = move_params;
  model.recompute = recompute;
  load_weights(model, file);
  uint64_t numel = 0;
  for (uint32_t i = 0; i < model.desc().n_params; ++i) numel += model.desc().params[i]->numel;
  REQUIRE(numel == file.metadata.at("params").get<uint64_t>());

  const std::string name = "stage" + std::to_string(stage + 1) + ".";
  ddh_batch* batch = reference_batch(model, file, stage);
  {
    const SeenInputs taken_by_linears("aten::linear");
    model.forward(batch, stage);
  }
  const bool shows_inputs = operators == "torch";  // else linear layers are no operators of LibTorch
  if (shows_inputs && stage >= 1) check_features(file.at("point_feature"));
  if (shows_inputs && stage == 2) check_features(file.at("image_features"));
  check_logits(reinterpret_cast<cad::CadBatch*>(batch)->logits, file.at(name + "logits"), file.at("input.ids").i64());
  const auto [sum, count] = model.metric(stage);
  REQUIRE(sum / count == Approx(static_cast<double>(file.at(name + "loss").f32()[0])).epsilon(1e-6));

  model.backward(batch, 1 / count, stage);
  size_t trained = 0;
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    CAPTURE(model.name(i));
    const uint8_t* trainable = model.desc().programs[stage]->trainable;
    REQUIRE((trainable[i] != 0) == learns_in(stage, model.name(i)));
    // Projectors learn at five times the rate; 0 stands for 1.
    if (trainable[i] != 0) REQUIRE(model.desc().params[i]->lr_scale == (is_adapter(model.name(i)) ? 0.0 : 5.0));
    if (!learns_in(stage, model.name(i))) continue;
    ++trained;
    REQUIRE(largest_difference(model.grad(i), file.at(name + "g." + model.name(i)).f32()) < 1e-5);
  }
  CHECK(trained == std::array<size_t, 3>{28, 32, 36}.at(static_cast<size_t>(stage)));
  model.discard();
  model.table().batch_destroy(model.inst(), batch);
  CHECK(model.host().bytes(DDH_TAG_ACT) == 0);
  CHECK(model.host().bytes(DDH_TAG_DATA) == 0);
}
