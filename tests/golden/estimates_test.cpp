// SPDX-License-Identifier: Apache-2.0
//
// What models and networks estimate, against what they run and keep: FLOPs within 2 % of the operators that LibTorch
// executes, activation bytes within 3 % of what the allocator counts after a forward. KGAT's own test is in golden_kgat.
#include <ATen/Parallel.h>

#include <catch2/catch.hpp>
#include <numeric>

#include "fixtures/harness/counted_flops.hpp"
#include "golden/cad_fixture.hpp"
#include "golden/cnn_fixture.hpp"
#include "golden/gpt_fixture.hpp"
#include "golden/vit_fixture.hpp"

using namespace ddhost::test;

namespace {

struct Row {
  const char* name;
  ddh_plugin_entry_fn entry;
  ModelDriver::Options options;
  int32_t program = 0;
  uint32_t samples = 8;
  double backward_flops_tolerance = 0.02;
  bool runs_operators_alone = true;  // else some FLOPs are in kernels of the model, which LibTorch does not see
};

ModelDriver::Options network(const std::string& name, ModelDriver::Options more = {}) {
  const bool is_video = name.ends_with("lstm") || name == "conv3d";
  if (is_video) more.insert({"model.frames", "4"});
  more.insert({{"model.network", name},
               {"model.matmul", "aten"},
               {"model.dataset", is_video ? "moving_mnist" : "made_up"},
               {"model.channels", "3"},
               {"model.image_size", "32"}});
  return more;
}

std::vector<Row> rows(const std::string& text) {
  const ModelDriver::Options gpt = {{"model.size", "custom"}, {"model.n_layer", "2"},  {"model.n_head", "4"},
                                    {"model.n_embd", "64"},   {"model.context", "32"}, {"data.path", text},
                                    {"model.matmul", "aten"}};
  const auto with = [](ModelDriver::Options options, const ModelDriver::Options& more) {
    for (const auto& [key, value] : more) options[key] = value;
    return options;
  };
  std::vector<Row> out = {
      {"gpt", ddh_entry_gpt, gpt},
      {"gpt bf16", ddh_entry_gpt, with(gpt, {{"precision.compute", "bf16"}})},
      {"gpt with dropout", ddh_entry_gpt, with(gpt, {{"model.dropout", "0.1"}})},
      {"vit", ddh_entry_vit, tiny_vit("tv", "aten")},
      {"vit of three weights", ddh_entry_vit, tiny_vit("hf", "aten")},
      {"vit bf16", ddh_entry_vit, with(tiny_vit("timm", "aten"), {{"precision.compute", "bf16"}})},
  };
  for (Row& row : out) row.runs_operators_alone = std::string_view(row.name) == "gpt with dropout";  // attention
  for (const char* name :
       {"basic", "resnet9", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0", "vgg11",
        "vgg16_bn", "two_stream", "ensemble", "cnn_lstm", "pretrained_cnn_lstm", "conv3d"}) {
    ModelDriver::Options more;
    const std::string n = name;
    if (n == "basic" || n == "cnn_lstm") more["model.padding"] = "1";
    if (n == "cnn_lstm" || n == "conv3d") more["model.widths"] = "[8, 16]";
    out.push_back({name, ddh_entry_cnn, network(name, more)});
    const bool has_depthwise = n.starts_with("mobilenet") || n == "efficientnet_b0" || n == "two_stream" ||
                               n == "ensemble" || n == "pretrained_cnn_lstm";
    out.back().runs_operators_alone = !has_depthwise;
  }
  out.push_back({"basic with batch norms", ddh_entry_cnn,
                 network("basic", {{"model.padding", "1"}, {"model.batch_norm", "true"}})});
  const auto add_mobilenet = [&](const char* name, const std::string& version, const ModelDriver::Options& more) {
    out.push_back({.name = name,
                   .entry = ddh_entry_cnn,
                   .options = network("mobilenet_" + version, more),
                   .runs_operators_alone = false});
  };
  // Its copy without channels side by side is a large part of what is kept.
  out.push_back({"basic whose flat image is copied", ddh_entry_cnn,
                 network("basic", {{"model.padding", "1"}, {"model.widths", "[8]"}, {"model.hidden", "16"}})});
  add_mobilenet("mobilenet_v3_large with a frozen trunk", "v3_large", {{"model.freeze", "features"}});
  // A residual block, of which the projection is trained.
  add_mobilenet("mobilenet_v2 with a trunk that is frozen but for its end", "v2",
                {{"model.freeze", "features"}, {"model.unfrozen", "8"}, {"model.head", "dense"}});
  // Without AVX-512, oneDNN has no LSTM in bf16. LibTorch's leaves out the gradient of the state before the first frame.
  out.push_back({.name = "cnn_lstm bf16",
                 .entry = ddh_entry_cnn,
                 .options = network("cnn_lstm", {{"model.widths", "[8, 16]"}, {"precision.compute", "bf16"}}),
                 .backward_flops_tolerance = __builtin_cpu_supports("avx512f") ? 0.02 : 0.035});
  add_mobilenet("mobilenet_v2 bf16", "v2", {{"precision.compute", "bf16"}});
  add_mobilenet("mobilenet_v2 in LibTorch's own layout", "v2", {{"model.channels_last", "false"}});
  for (const int32_t stage : {0, 1, 2}) {
    static const char* const kNames[] = {"cad_mllm, stage 1", "cad_mllm, stage 2", "cad_mllm, stage 3"};
    out.push_back({kNames[stage],
                   ddh_entry_cad_mllm,
                   {{"model.width", "96"}, {"model.mlp_width", "256"}, {"model.matmul", "aten"}},
                   stage,
                   10});
  }
  out.push_back({"cad_mllm with three views",
                 ddh_entry_cad_mllm,
                 {{"model.width", "96"}, {"model.mlp_width", "256"}, {"model.views", "3"}, {"model.matmul", "aten"}},
                 2,
                 10});
  // By LibTorch's operators, as on a GPU.
  for (size_t i = 0, n = out.size(); i < n; ++i) {
    Row row = out[i];
    row.options.erase("model.matmul");
    row.options["model.operators"] = "torch";
    row.runs_operators_alone = true;
    out.push_back(std::move(row));
  }
  return out;
}

}  // namespace

TEST_CASE("every model and network estimates its FLOPs within 2 %, and its activations within 3 %") {
  const SmallText text("estimates", [] {
    std::string letters;
    for (int i = 0; i < 2000; ++i) letters += static_cast<char>('a' + i * i % 23);
    return letters;
  }());
  at::set_num_threads(1);  // the count is of this thread
  for (const Row& row : rows(text.path())) {
    ModelDriver model(row.entry, row.options);
    for (size_t i = 0; i < model.desc().n_params; ++i) model.value(i) = golden_fill(model.name(i), model.shape(i), 1);
    const ddh_estimate expected = model.estimate(row.program, row.samples);
    std::vector<int64_t> samples(row.samples);
    std::iota(samples.begin(), samples.end(), 0);
    auto batch = model.create_batch(samples, row.program);
    const auto before = model.host().bytes(DDH_TAG_ACT);
    const CountedFlops flops;
    model.forward(batch.batch, row.program);
    const double forward = CountedFlops::total();
    const auto kept = static_cast<double>(model.host().bytes(DDH_TAG_ACT) - before);
    CountedFlops::total() = 0;
    model.backward(batch.batch, 1, row.program);
    const double backward = CountedFlops::total();
    const auto bytes = static_cast<double>(expected.activation_bytes);
    INFO(row.name << (row.options.contains("model.operators") ? " by operators" : "") << ": forward "
                  << expected.forward_flops / forward << ", backward " << expected.backward_flops / backward
                  << ", bytes " << bytes / kept << " of what was counted");
    if (row.runs_operators_alone) {
      CHECK(expected.forward_flops == Approx(forward).epsilon(0.02));
      CHECK(expected.backward_flops == Approx(backward).epsilon(row.backward_flops_tolerance));
    }
    CHECK(bytes == Approx(kept).epsilon(0.03));
    model.discard();
    model.destroy_batch(batch);
  }
}

TEST_CASE("with recomputation every model keeps less between forward and backward") {
  const SmallText text("recomputes", std::string(2000, 'a') + "bcd");
  for (const Row& row : rows(text.path())) {
    const std::string name = row.name;
    if (name != "gpt" && name != "vit" && name != "resnet9" && name != "cad_mllm, stage 3") continue;
    const auto kept = [&row](bool recompute) {
      ModelDriver model(row.entry, row.options);
      model.recompute = recompute;
      std::vector<int64_t> samples(row.samples);
      std::iota(samples.begin(), samples.end(), 0);
      auto batch = model.create_batch(samples, row.program);
      model.forward(batch.batch, row.program);
      const auto bytes = static_cast<double>(model.host().bytes(DDH_TAG_ACT));
      model.discard();
      model.destroy_batch(batch);
      return bytes;
    };
    CAPTURE(name, kept(true), kept(false));
    CHECK(kept(true) < 0.6 * kept(false));
  }
}
