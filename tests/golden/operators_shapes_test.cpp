// SPDX-License-Identifier: Apache-2.0
//
// The code that runs on a GPU, on shapes alone: LibTorch's device `meta` has no data, and parameters and gradients have
// addresses that nobody can access. So a model that accesses memory of the device by itself ends with a fault.
#include <catch2/catch.hpp>

#include "golden/cad_fixture.hpp"
#include "golden/cnn_fixture.hpp"
#include "golden/gpt_fixture.hpp"
#include "golden/shape_functions.hpp"
#include "golden/vit_fixture.hpp"

using namespace ddhost::test;

namespace {

using Options = ModelDriver::Options;

// Steps with and without a forward that runs again, and an evaluation.
void run_on_shapes(ddh_plugin_entry_fn entry, Options options, const std::vector<int64_t>& samples, int32_t train = 0,
                   int32_t eval = 1) {
  options["model.operators"] = "meta";
  ModelDriver model(entry, options);
  model.hide_memory = true;
  for (const bool recompute : {false, true}) {
    model.recompute = recompute;
    auto batch = model.create_batch(samples, train);
    for (const bool add : {false, true}) {
      model.forward(batch.batch, train);
      const auto [sum, count] = model.metric(train);
      CHECK(std::isnan(sum));  // a shape has no loss
      CHECK(count > 0);
      CHECK(std::isnan(model.metric(train).first));  // a second reading
      model.backward(batch.batch, 1, train, 1, 0, add);
      model.discard();
    }
    model.destroy_batch(batch);
  }
  auto batch = model.create_batch(samples, eval);
  model.forward(batch.batch, eval);
  CHECK(std::isnan(model.metric(eval).first));
  model.discard();
  model.destroy_batch(batch);
  for (size_t i = 0; i < model.desc().n_params; ++i) CHECK(std::isnan(model.grad(i)[0]));  // nothing was written
  CHECK(model.host().bytes(DDH_TAG_ACT) == 0);
  CHECK(model.host().bytes(DDH_TAG_DATA) == 0);
}

}  // namespace

TEST_CASE("gpt and vit do not access memory of the device by themselves") {
  const SmallText text("gpt-shapes", std::string(400, 'a') + "bcd");
  const std::string compute = GENERATE("fp32", "bf16"), dropout = GENERATE("0.0", "0.2");
  CAPTURE(compute, dropout);
  Options gpt = tiny_gpt2(text, "gelu_tanh", "auto");
  gpt["data.val_fraction"] = "0.3", gpt["model.eval_stride"] = "1";
  gpt["precision.compute"] = compute, gpt["model.dropout"] = dropout;
  run_on_shapes(ddh_entry_gpt, gpt, {3, 50});
  Options vit = tiny_vit(dropout == "0.0" ? "hf" : "tv", "auto");
  vit["precision.compute"] = compute, vit["model.dropout"] = dropout, vit["model.stochastic_depth"] = dropout;
  run_on_shapes(ddh_entry_vit, vit, {1, 2});
}

TEST_CASE("cnn does not access memory of the device by itself") {
  const std::string network = GENERATE("basic", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "cnn_lstm");
  const std::string compute = GENERATE("fp32", "bf16");
  CAPTURE(network, compute);
  Options options = network == "cnn_lstm" ? tiny_lstm({{"model.dropout", "0.2"}})
                                          : tiny_cnn({{"model.network", network}, {"model.dropout", "0.2"}});
  if (network == "basic") options["model.batch_norm"] = "true";
  options["precision.compute"] = compute;
  run_on_shapes(ddh_entry_cnn, options, {1, 2, 3});
}

TEST_CASE("cad_mllm does not access memory of the device by itself in any stage") {
  const int32_t stage = GENERATE(0, 1, 2);
  const std::string compute = GENERATE("fp32", "bf16");
  CAPTURE(stage, compute);
  run_on_shapes(ddh_entry_cad_mllm, {{"precision.compute", compute}, {"model.lora_dropout", "0.1"}}, {1, 2}, stage,
                3 + stage);
}
