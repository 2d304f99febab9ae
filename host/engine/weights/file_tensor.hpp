// SPDX-License-Identifier: Apache-2.0
//
// engine/weights/file_tensor.hpp: a tensor of a file, row-major.
#pragma once

#include <cstdint>
#include <vector>

#include "ddh/ddh.h"

namespace ddhost {

struct FileTensor {
  int32_t dtype;  // DDH_*; 0: one that is unknown here
  std::vector<int64_t> shape;
  const void* data;
  uint64_t bytes;
};

}  // namespace ddhost
