// SPDX-License-Identifier: Apache-2.0
//
// ops/choice.hpp: which library multiplies where the run leaves it to us. It goes by shape, dtype and processor, from a table
// in choice.cpp, so that two runs on equal processors have the same bits. Measuring serves to correct the table.
#pragma once

#include <string>
#include <vector>

#include "products.hpp"

namespace ops {

struct Processor {
  std::string vendor;  // "GenuineIntel", "AuthenticAMD"; "" where it does not say
  bool x86 = false, avx512 = false, bf16 = false;
  [[nodiscard]] std::string text() const;  // "GenuineIntel with AVX-512 and bf16"
};
const Processor& this_processor();

// The table's name for a layer of this shape; a name of product_names().
std::string chosen_products(LinearShape shape, int32_t dtype, const Processor& processor);

// Milliseconds of forward and both gradients by a library: the best of some tries.
struct Measured {
  std::string name;
  double milliseconds;
};
std::vector<Measured> measure_products(LinearShape shape, int32_t dtype);

}  // namespace ops
