// SPDX-License-Identifier: Apache-2.0
//
// tests/golden/ways.hpp: the ways to compute matrix products that a model's reference tensors are compared by.
#pragma once

#include <string>
#include <vector>

#include "../../models/ops/products.hpp"
#include "fixtures/harness/model_driver.hpp"

namespace ddhost::test {

// A library of matrix products, or "torch": by LibTorch's operators alone, as on a GPU.
inline std::vector<std::string> ways() {
  std::vector<std::string> names = ops::product_names();
  names.emplace_back("torch");
  return names;
}

inline ModelDriver::Options computed_by(const std::string& way, ModelDriver::Options options) {
  options["model.matmul"] = way == "torch" ? "auto" : way;
  options["model.operators"] = way == "torch" ? "torch" : "auto";
  return options;
}

}  // namespace ddhost::test
