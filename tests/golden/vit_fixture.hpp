// SPDX-License-Identifier: Apache-2.0
//
// tests/golden/vit_fixture.hpp: a Vision Transformer linked into the test.
#pragma once

#include <string>

#include "../../models/vit/vit.hpp"
#include "fixtures/harness/golden_fill.hpp"
#include "golden/compare.hpp"

DDH_EXTERN_C ddh_rc ddh_entry_vit(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;

namespace ddhost::test {

inline vit::Vit& vit_of(ModelDriver& model) { return ddh::self_as<vit::Vit>(model.inst()); }

// The shape of the references golden/vit_tiny_*.safetensors.
inline ModelDriver::Options tiny_vit(const std::string& names, const std::string& matmul) {
  return {{"model.size", "custom"}, {"model.n_layer", "2"},  {"model.n_head", "4"},        {"model.width", "48"},
          {"model.patch", "8"},     {"model.names", names},  {"model.dataset", "made_up"}, {"model.image_size", "32"},
          {"model.channels", "3"},  {"model.classes", "10"}, {"model.matmul", matmul}};
}

inline void fill(ModelDriver& model, double gain = 1) {
  for (size_t i = 0; i < model.desc().n_params; ++i) model.value(i) = golden_fill(model.name(i), model.shape(i), gain);
}

}  // namespace ddhost::test
