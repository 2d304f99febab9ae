// SPDX-License-Identifier: Apache-2.0
//
// model_logits MODEL WEIGHTS INPUTS OUT key=value...: the logits that a model has for given inputs, with the weights and
// buffers of a safetensors file. opens_elsewhere.py compares them with those of the libraries that such files come from.
// INPUTS and OUT are safetensors files; the input is `ids` (B, T) I64 or `pixels` (B, channels, side, side) F32. Pixels for
// cad_mllm give the features of its image encoder.
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "../../../models/cad_mllm/cad_mllm.hpp"
#include "../../../models/cnn/cnn.hpp"
#include "../../../models/gpt/gpt.hpp"
#include "../../../models/vit/vit.hpp"
#include "fixtures/harness/model_driver.hpp"
#include "fixtures/harness/safetensors.hpp"
#include "golden/cad_units.hpp"

DDH_EXTERN_C ddh_rc ddh_entry_gpt(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;
DDH_EXTERN_C ddh_rc ddh_entry_vit(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;
DDH_EXTERN_C ddh_rc ddh_entry_cnn(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;
DDH_EXTERN_C ddh_rc ddh_entry_cad_mllm(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;

namespace ddhost::test {
namespace {

std::vector<float> values_of(const at::Tensor& t) {
  const at::Tensor values = t.to(at::kFloat).contiguous();
  return {values.const_data_ptr<float>(), values.const_data_ptr<float>() + values.numel()};
}

void load(ModelDriver& model, const GoldenFile& weights) {
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    const GoldenTensor& tensor = weights.at(model.name(i));
    if (tensor.shape != model.shape(i)) ddh::fail(DDH_INVALID_ARGUMENT, "'", model.name(i), "' has another shape");
    model.value(i) = tensor.f32();
  }
  for (uint32_t i = 0; i < model.desc().n_buffers; ++i) {
    const ddh_buffer_desc& buffer = *model.desc().buffers[i];
    const GoldenTensor& tensor = weights.at(buffer.name);
    std::memcpy(buffer.data, tensor.bytes.data(), tensor.bytes.size());
  }
}

struct Batch {
  ModelDriver& model;
  ddh_batch* batch;
  ~Batch() {
    model.discard();
    model.table().batch_destroy(model.inst(), batch);
  }
};

std::vector<float> logits_of(const std::string& name, ModelDriver& model, const GoldenFile& inputs) {
  if (name == "cad_mllm" && inputs.tensors.contains("pixels")) {
    const GoldenTensor& given = inputs.at("pixels");
    at::Tensor pixels = at::empty(given.shape, at::kFloat);
    std::memcpy(pixels.mutable_data_ptr(), given.bytes.data(), given.bytes.size());
    const cad::Config config(ddh::Host(model.host().get()));
    return values_of(
        image_features(config, pixels, [&](const auto& param, const auto&) { return model.value(param); }));
  }
  if (name == "gpt" || name == "cad_mllm") {
    const GoldenTensor& ids = inputs.at("ids");
    const std::vector<int64_t> targets(ids.numel(), 1);
    if (name == "gpt") {
      auto& gpt = ddh::self_as<gpt::Gpt>(model.inst());
      const Batch b{model, gpt.batch_of_ids(ids.i64(), targets, ids.shape[0])};
      model.forward(b.batch);
      return values_of(gpt.logits(0));
    }
    auto& cad = ddh::self_as<cad::CadMllm>(model.inst());
    const Batch b{model, cad.batch_of(/*stage*/ 0, ids.shape[0], ids.i64(), targets, {}, {})};
    model.forward(b.batch, 0);
    return reinterpret_cast<cad::CadBatch*>(b.batch)->logits;
  }
  const GoldenTensor& pixels = inputs.at("pixels");
  const std::vector<int64_t> labels(static_cast<size_t>(pixels.shape[0]), 0);
  if (name == "vit") {
    auto& vit = ddh::self_as<vit::Vit>(model.inst());
    const Batch b{model, vit.batch_of_pixels(pixels.f32(), labels)};
    model.forward(b.batch);
    return values_of(vit.logits(0));
  }
  const Batch b{model, ddh::self_as<cnn::Cnn>(model.inst()).batch_of_pixels(pixels.f32(), labels)};
  model.forward(b.batch, /*the evaluation's program*/ 1);
  return reinterpret_cast<cnn::CnnBatch*>(b.batch)->logits;
}

void run(const std::vector<std::string>& words) {
  if (words.size() < 5) ddh::fail(DDH_INVALID_ARGUMENT, "model_logits MODEL WEIGHTS INPUTS OUT key=value...");
  const std::string& name = words[1];
  ModelDriver::Options options;
  for (size_t i = 5; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string::npos) ddh::fail(DDH_INVALID_ARGUMENT, "'", words[i], "' is not key=value");
    options[words[i].substr(0, equals)] = words[i].substr(equals + 1);
  }
  const ddh_plugin_entry_fn entry = name == "gpt"   ? ddh_entry_gpt
                                    : name == "vit" ? ddh_entry_vit
                                    : name == "cnn" ? ddh_entry_cnn
                                                    : ddh_entry_cad_mllm;
  ModelDriver model(entry, options);
  load(model, read_safetensors(words[2]));
  const std::vector<float> logits = logits_of(name, model, read_safetensors(words[3]));
  GoldenTensor out{"F32", {static_cast<int64_t>(logits.size())}, std::vector<char>(logits.size() * sizeof(float))};
  std::memcpy(out.bytes.data(), logits.data(), out.bytes.size());
  write_safetensors(words[4], {{"logits", out}});
}

}  // namespace
}  // namespace ddhost::test

int main(int argc, char** argv) {
  try {
    ddhost::test::run({argv, argv + argc});
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "model_logits: %s\n", e.what());
    return 1;
  }
}
