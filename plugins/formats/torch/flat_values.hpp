// SPDX-License-Identifier: Apache-2.0
//
// formats/torch/flat_values.hpp: shapes of imported tensors, and buffers that are put together from parts.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "foreign_checkpoint.hpp"

namespace torch_format {

// Throws std::invalid_argument where it does not fit in 2^48 elements.
inline uint64_t numel_of(const std::vector<int64_t>& shape) {
  uint64_t numel = 1;
  for (const int64_t n : shape)
    if (n < 0 || __builtin_mul_overflow(numel, static_cast<uint64_t>(n), &numel) || numel > uint64_t{1} << 48)
      throw std::invalid_argument("a tensor has an impossible shape");
  return numel;
}

// The number of an optimizer's updates of a parameter, which torch stores as a float.
inline void note_step(ForeignCheckpoint& out, const ddh::FileTensor& step, const std::string& param) {
  float value = 0;
  if (step.dtype != DDH_F32 || step.bytes != sizeof value) return;
  std::memcpy(&value, step.data, sizeof value);
  const bool counts = value >= 0 && value < 0x1p53F;
  if (!counts) throw std::invalid_argument("the optimizer's step is no number of steps");
  if (out.step && *out.step != static_cast<int64_t>(value)) out.other_step = param;
  out.step = static_cast<int64_t>(value);
}

// A tensor with memory of its own, zero at first. `most_bytes`: what the files hold, so that no header asks for more.
struct OwnedTensor {
  ddh::FileTensor tensor;
  char* bytes;
};
inline OwnedTensor own(ForeignCheckpoint& out, int32_t dtype, const std::vector<int64_t>& shape, uint64_t most_bytes) {
  const uint64_t bytes = numel_of(shape) * ddh_dtype_bytes(dtype);
  if (dtype == 0 || bytes > most_bytes) throw std::invalid_argument("a tensor is larger than the files that hold it");
  std::vector<char>& values = out.values.emplace_back(bytes);
  return {{dtype, shape, values.data(), bytes}, values.data()};
}

}  // namespace torch_format
