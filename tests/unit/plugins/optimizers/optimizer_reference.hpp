// SPDX-License-Identifier: Apache-2.0
//
// tests/unit/plugins/optimizers/optimizer_reference.hpp: the stored trajectories, and the options of each. A test that goes
// through them tests every optimizer.
#pragma once

#include "unit/plugins/optimizers/optimizer_fixture.hpp"

namespace ddhost::test {

struct OptimizerCase {
  struct Kept {
    int64_t step;
    std::vector<std::vector<double>> arrays;  // parameter, then slots; all tensors in a row
  };
  std::string optimizer;
  double lr;
  Numbers options;
  Texts texts;
  std::vector<std::vector<int64_t>> shapes;
  double peer_fp32_error;  // max |dp| / (|p| + lr) of the same run in fp32, by torch
  std::vector<double> peer_fp32_slot_errors;
  std::vector<Kept> kept;
};
inline const std::vector<OptimizerCase>& reference_cases() {
  static const std::vector<OptimizerCase> cases = {
#include "data/optimizer_reference.inc"
  };
  return cases;
}

inline Numbers options_of(const OptimizerCase& c) {
  Numbers options = c.options;
  options["decay_groups"] = {1};
  options["lr"] = {c.lr};
  options.emplace("bias_correction", std::vector<double>{1});  // the cases of torch's optimizers do not have it
  return options;
}
inline Texts texts_of(const OptimizerCase& c) {
  Texts texts = c.texts;
  texts["adamw_params"] = "*embed*";
  return texts;
}

}  // namespace ddhost::test
