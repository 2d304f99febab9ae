// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/whole_checkpoints.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "checkpoint/chunk_reader.hpp"
#include "checkpoint/safetensors.hpp"
#include "engine/numerics/kernels.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

// "F32 [31, 5]"
std::string form_text(const StoredTensor& tensor) {
  return safetensors_name(tensor.dtype) + (" " + ddh::shape_text(tensor.shape));
}

bool is_float(int32_t dtype) { return dtype == DDH_F32 || dtype == DDH_BF16 || dtype == DDH_F16; }

// Elements of one chunk of both.
void compare(const char* a, const char* b, uint64_t bytes, int32_t dtype, TensorDiff& diff) {
  if (std::memcmp(a, b, bytes) == 0) return;
  const uint64_t width = ddh_dtype_bytes(dtype), numel = bytes / width;
  for (uint64_t i = 0; i < numel; ++i)
    if (std::memcmp(a + i * width, b + i * width, width) != 0) ++diff.elements;
  if (!is_float(dtype)) return;
  std::vector<float> values(2 * numel);
  kernels::cast(values.data(), DDH_F32, a, dtype, numel);
  kernels::cast(values.data() + numel, DDH_F32, b, dtype, numel);
  for (uint64_t i = 0; i < numel; ++i) {
    const double distance = std::abs(static_cast<double>(values[i]) - static_cast<double>(values[numel + i]));
    if (!(distance <= diff.largest.value_or(0))) diff.largest = distance;  // NaN stays
  }
}

}  // namespace

CheckpointDiff diff_tensors(const fs::path& first_folder, const Manifest& first, const fs::path& second_folder,
                            const Manifest& second) {
  CheckpointDiff out{{}, first.tensors.size()};
  ChunkReader a(first_folder, first), b(second_folder, second);
  std::vector<char> other(kChunkBytes);
  for (const Manifest::Tensor& tensor : first.tensors) {
    const StoredTensor& t = tensor.stored;
    const Manifest::Tensor* const match = second.find(t.name);
    TensorDiff diff{t.name, "", 0, t.bytes / ddh_dtype_bytes(t.dtype), std::nullopt};
    if (match == nullptr)
      diff.unlike = "only the first has it";
    else if (match->stored.dtype != t.dtype || match->stored.shape != t.shape)
      diff.unlike = form_text(t) + " in the first, " + form_text(match->stored) + " in the second";
    if (!diff.unlike.empty()) {
      out.tensors.push_back(diff);
      continue;
    }
    a.for_each_chunk(tensor, [&](uint64_t begin, const char* data, uint64_t bytes) {
      b.read(*match, begin, bytes, other.data());
      compare(data, other.data(), bytes, t.dtype, diff);
    });
    if (diff.elements > 0) out.tensors.push_back(diff);
  }
  for (const Manifest::Tensor& tensor : second.tensors) {
    const StoredTensor& t = tensor.stored;
    if (first.find(t.name) != nullptr) continue;
    ++out.names;
    out.tensors.push_back({t.name, "only the second has it", 0, t.bytes / ddh_dtype_bytes(t.dtype), std::nullopt});
  }
  return out;
}

}  // namespace ddhost
