// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/files/file_tensor.hpp: a tensor of a file, row-major and little-endian.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ddh/sdk/structs.hpp"

namespace ddh {

// It has no functions, and is not in the hidden namespace, so that classes of a program may hold it.
struct FileTensor {
  int32_t dtype;  // DDH_*; 0: one that is unknown here
  std::vector<int64_t> shape;
  const void* data;
  uint64_t bytes;
};

inline namespace v1 DDH_HIDDEN {

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

}  // namespace DDH_HIDDEN
}  // namespace ddh
