// SPDX-License-Identifier: Apache-2.0
//
// engine/weights/file_tensor.hpp: a tensor of a file, row-major.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddh/ddh.h"

namespace ddhost {

struct FileTensor {
  int32_t dtype;  // DDH_*; 0: one that is unknown here
  std::vector<int64_t> shape;
  const void* data;
  uint64_t bytes;
};

// "[31, 5]"
inline std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace ddhost
