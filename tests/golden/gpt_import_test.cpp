// SPDX-License-Identifier: Apache-2.0
//
// A GPT-2 folder that transformers wrote (tests/data/make_imports.py, from the weights of gpt2_tiny) through train.init_from's
// reader: its linear weights are [in, out], one of them square.
#include <catch2/catch.hpp>

#include "engine/weights/load.hpp"
#include "golden/compare.hpp"
#include "golden/gpt_fixture.hpp"

using namespace ddhost::test;

TEST_CASE("a GPT-2 folder of transformers has the reference's logits") {
  const auto folder = find_data("imports/hf_gpt2/model.safetensors");
  const auto golden = find_data("golden/gpt2_tiny.safetensors");
  if (!folder || !golden) return;
  const GoldenFile file = read_safetensors(*golden);
  const SmallText text("gpt2-import");
  ModelDriver model(ddh_entry_gpt, tiny_gpt2(text, "gelu_tanh", "aten"));
  const std::string path = std::filesystem::path(*folder).parent_path().string();
  const ddhost::WeightsFiles weights(model.desc(), {{path, ""}});
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    INFO(model.name(i));
    std::vector<float>& values = model.value(i);
    // In two ranges, as ranks read them.
    const size_t half = values.size() / 3;
    REQUIRE(weights.read_range(static_cast<int32_t>(i), 0, half, values.data()));
    REQUIRE(weights.read_range(static_cast<int32_t>(i), half, values.size() - half, values.data() + half));
    CHECK(values == from_hf(model.name(i), model.shape(i), file.at("w." + model.name(i)).f32()));
  }
  REQUIRE(weights.notes().size() == 1);
  CHECK_THAT(weights.notes().front(), Catch::Contains("transposed"));

  ddh_batch* batch = gpt_of(model).batch_of_ids(file.at("input.ids").i64(), shifted(file.at("labels").i64(), 2), 2);
  model.forward(batch);
  CHECK(largest_difference(values_of(gpt_of(model).logits(0)), file.at("logits").f32()) < 1e-5);
  model.discard();
  model.table().batch_destroy(model.inst(), batch);
}
