// SPDX-License-Identifier: Apache-2.0
//
// tests/golden/kgat_fixture.hpp: a knowledge graph attention network linked into the test.
#pragma once

#include <string>

#include "../../models/kgat/kgat.hpp"
#include "fixtures/harness/ddhost_process.hpp"
#include "fixtures/harness/golden_fill.hpp"
#include "golden/compare.hpp"

DDH_EXTERN_C ddh_rc ddh_entry_kgat(const ddh_host* host, const ddh_module** out, ddh_err* err) DDH_NX;

namespace ddhost::test {

inline kgat::Kgat& kgat_of(ModelDriver& model) { return ddh::self_as<kgat::Kgat>(model.inst()); }

// On the made-up graph, without dropout.
inline ModelDriver::Options small_kgat(const ModelDriver::Options& more = {}) {
  ModelDriver::Options all = {{"model.dataset", "made_up"}, {"model.embed_dim", "8"}, {"model.relation_dim", "6"},
                              {"model.layers", "[8, 4]"},   {"model.matmul", "aten"}, {"model.message_dropout", "0.0"},
                              {"model.l2_cf", "1e-2"},      {"model.l2_kg", "1e-2"}};
  for (const auto& [key, value] : more) all[key] = value;
  // Options that the variant refuses.
  const std::string variant = all.contains("model.variant") ? all["model.variant"] : "kgat";
  if (variant != "kgat") all.erase("model.relation_dim"), all.erase("model.l2_kg");
  if (variant == "mf") all.erase("model.layers"), all.erase("model.message_dropout");
  return all;
}

inline void fill(ModelDriver& model, double gain = 1) {
  for (size_t i = 0; i < model.desc().n_params; ++i) model.value(i) = golden_fill(model.name(i), model.shape(i), gain);
}

}  // namespace ddhost::test
