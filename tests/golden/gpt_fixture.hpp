// SPDX-License-Identifier: Apache-2.0
//
// tests/golden/gpt_fixture.hpp: a GPT linked into the test, with weights in the Hugging Face layout.
#pragma once

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "../../models/gpt/gpt.hpp"
#include "fixtures/harness/golden_data.hpp"
#include "fixtures/harness/model_driver.hpp"
#include "fixtures/harness/safetensors.hpp"
#include "fixtures/harness/small_text.hpp"

DDH_EXTERN_C ddh_rc ddh_entry_gpt(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;

namespace ddhost::test {

// Weights that Hugging Face stores as [in, out] and this model as [out, in].
inline bool is_transposed(const std::string& name) {
  for (const char* end : {"attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

// (rows, columns) -> (columns, rows)
inline std::vector<float> transpose(const std::vector<float>& from, size_t rows, size_t columns) {
  std::vector<float> to(from.size());
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c];
  }
  return to;
}

// A tensor of Hugging Face's layout as this model stores it; `shape` is this model's.
inline std::vector<float> from_hf(const std::string& name, const std::vector<int64_t>& shape,
                                  std::vector<float> values) {
  if (!is_transposed(name)) return values;
  return transpose(values, static_cast<size_t>(shape[1]), static_cast<size_t>(shape[0]));
}

inline gpt::Gpt& gpt_of(ModelDriver& model) { return ddh::self_as<gpt::Gpt>(model.inst()); }

// The shape of the reference golden/gpt2_tiny.safetensors.
inline ModelDriver::Options tiny_gpt2(const SmallText& text, const char* activation, const char* matmul) {
  return {{"model.size", "custom"},   {"model.n_layer", "2"},     {"model.n_head", "4"},
          {"model.n_embd", "32"},     {"model.context", "20"},    {"model.vocab", "67"},
          {"model.block_size", "24"}, {"model.bias", "on"},       {"data.path", text.path()},
          {"data.val_path", ""},      {"data.val_fraction", "0"}, {"model.activation", activation},
          {"model.matmul", matmul}};
}

inline void load_weights(ModelDriver& model, const GoldenFile& file) {
  for (size_t i = 0; i < model.desc().n_params; ++i) {
    const std::string name = model.name(i);
    model.value(i) = from_hf(name, model.shape(i), file.at("w." + name).f32());
  }
}

// Targets as Hugging Face takes them from labels (B, T): shifted by one, nothing at the end.
inline std::vector<int64_t> shifted(const std::vector<int64_t>& labels, size_t B) {
  std::vector<int64_t> targets(labels.size(), gpt::kIgnoredTarget);
  const size_t T = labels.size() / B;
  for (size_t i = 0; i < labels.size(); ++i) {
    if ((i + 1) % T != 0) targets[i] = labels[i + 1];
  }
  return targets;
}

}  // namespace ddhost::test
