// SPDX-License-Identifier: Apache-2.0
//
// ops/choice.hpp: chooses the library of matrix products if the user does not. The choice depends on shape, dtype and
// processor, by a table in choice.cpp, so two runs on equal processors have the same bits. Measurements are only used
// to update the table.
#pragma once

#include <string>
#include <vector>

#include "processor.hpp"
#include "products.hpp"

namespace ops {

// The table's name for a layer of this shape; a name of product_names().
std::string chosen_products(LinearShape shape, int32_t dtype, const Processor& processor);

// Milliseconds of forward and both gradients with a library: the best of several runs.
struct Measured {
  std::string name;
  double milliseconds;
};
std::vector<Measured> measure_products(LinearShape shape, int32_t dtype);

}  // namespace ops
