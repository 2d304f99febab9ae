// SPDX-License-Identifier: Apache-2.0
//
// tests/golden/cnn_fixture.hpp: convolutional networks linked into the test, with their buffers.
#pragma once

#include <cstring>
#include <string>

#include "../../models/cnn/cnn.hpp"
#include "fixtures/harness/golden_fill.hpp"
#include "golden/compare.hpp"

DDH_EXTERN_C ddh_rc ddh_entry_cnn(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;

namespace ddhost::test {

inline cnn::Cnn& cnn_of(ModelDriver& model) { return ddh::self_as<cnn::Cnn>(model.inst()); }

// Of basic: the shape of the reference golden/basic_cnn_tiny.safetensors. Other networks get what they read of it.
inline ModelDriver::Options tiny_cnn(ModelDriver::Options more = {}) {
  const std::string network = more.insert({"model.network", "basic"}).first->second;
  const bool is_plain = network == "basic" || network == "cnn_lstm" || network == "conv3d";
  if (is_plain) more.insert({"model.widths", "[4, 6, 8, 8]"});
  if (is_plain || network == "pretrained_cnn_lstm") more.insert({"model.hidden", "16"});
  more.insert(
      {{"model.dropout", "0"}, {"model.dataset", "made_up"}, {"model.image_size", "64"}, {"model.channels", "3"}});
  return more;
}

// The shape of the reference golden/cnn_lstm_tiny.safetensors.
inline ModelDriver::Options tiny_lstm(ModelDriver::Options more = {}) {
  more.insert({{"model.network", "cnn_lstm"},
               {"model.widths", "[4, 6, 8]"},
               {"model.lstm", "[10, 6]"},
               {"model.hidden", "8"},
               {"model.dropout", "0"},
               {"model.dataset", "moving_mnist"},
               {"model.image_size", "30"},
               {"model.channels", "3"}});
  return more;
}

// A network on made-up images of 32 pixels, without randomness.
inline ModelDriver::Options small(const std::string& network, ModelDriver::Options more = {}) {
  more.insert({{"model.network", network},
               {"model.dataset", "made_up"},
               {"model.channels", "3"},
               {"model.image_size", "32"},
               {"model.dropout", "0"},
               {"model.stochastic_depth", "0"}});
  return more;
}

// Weights and running statistics by the generator of the references.
inline void fill_all(ModelDriver& model, double gain) {
  for (size_t i = 0; i < model.desc().n_params; ++i) model.value(i) = golden_fill(model.name(i), model.shape(i), gain);
  for (uint32_t i = 0; i < model.desc().n_buffers; ++i) {
    const ddh_buffer_desc& b = *model.desc().buffers[i];
    if (b.dtype != DDH_F32) continue;
    const std::vector<float> values = golden_fill(b.name, {b.shape, b.shape + b.n_dims});
    std::memcpy(b.data, values.data(), values.size() * sizeof(float));
  }
}

// What the host does to running statistics after a step of one micro-batch.
inline void fold(ModelDriver& model, int32_t micro_batch = 0) {
  for (uint32_t i = 0; i < model.desc().n_buffers; ++i) {
    const ddh_buffer_desc& b = *model.desc().buffers[i];
    if (b.dtype != DDH_F32) continue;
    std::vector<float> given(b.numel);
    int32_t is_given = 0;
    ddh::call(model.table().contribution, model.inst(), i, 0, micro_batch, given.data(), &is_given);
    REQUIRE(is_given == 1);
    auto* values = static_cast<float*>(b.data);
    for (size_t k = 0; k < b.numel; ++k) values[k] = static_cast<float>(b.fold_decay) * values[k] + given[k];
  }
}

inline std::vector<float> buffer_of(const ModelDriver& model, const std::string& name) {
  for (uint32_t i = 0; i < model.desc().n_buffers; ++i) {
    const ddh_buffer_desc& b = *model.desc().buffers[i];
    if (b.name == name) return {static_cast<const float*>(b.data), static_cast<const float*>(b.data) + b.numel};
  }
  ddh::fail(DDH_NOT_FOUND, "the model has no buffer '", name, "'");
}

// For a batch of samples; batch_of_pixels keeps them anyway.
inline void keep_logits(ddh_batch* batch) { reinterpret_cast<cnn::CnnBatch*>(batch)->keeps_logits = true; }
inline std::vector<float> logits_of(ddh_batch* batch) { return reinterpret_cast<cnn::CnnBatch*>(batch)->logits; }

}  // namespace ddhost::test
