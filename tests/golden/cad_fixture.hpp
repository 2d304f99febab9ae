// SPDX-License-Identifier: Apache-2.0
//
// tests/golden/cad_fixture.hpp: a CAD-MLLM linked into the test.
#pragma once

#include <string>

#include "../../models/cad_mllm/cad_mllm.hpp"
#include "fixtures/harness/golden_fill.hpp"
#include "golden/compare.hpp"

DDH_EXTERN_C ddh_rc ddh_entry_cad_mllm(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;

namespace ddhost::test {

inline cad::CadMllm& cad_of(ModelDriver& model) { return ddh::self_as<cad::CadMllm>(model.inst()); }

// Weights by the generator of the references. Adapters too, so that B is not zero.
inline void fill_cad(ModelDriver& model) {
  for (size_t i = 0; i < model.desc().n_params; ++i) model.value(i) = golden_fill(model.name(i), model.shape(i), 1);
}

inline bool is_adapter(const std::string& name) { return name.find(".lora_") != std::string::npos; }

// Whether a stage (0 to 2) of the curriculum trains a weight.
inline bool learns_in(int32_t stage, const std::string& name) {
  return is_adapter(name) || (stage >= 1 && name.starts_with("point_projector.")) ||
         (stage >= 2 && name.starts_with("image_projector."));
}

}  // namespace ddhost::test
