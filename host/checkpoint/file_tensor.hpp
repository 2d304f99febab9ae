// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/file_tensor.hpp: a tensor of a file, row-major.
#pragma once

#include <cstdint>
#include <cstring>
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

inline bool same_values(const FileTensor& a, const FileTensor& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  return a.data == b.data || a.bytes == 0 || std::memcmp(a.data, b.data, a.bytes) == 0;
}

}  // namespace ddhost
