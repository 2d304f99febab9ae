// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gpt2_layout.hpp"

#include "engine/numerics/kernels.hpp"

namespace ddhost {

std::string conv1d_note(const std::string& what) {
  return what + " holds GPT-2's linear weights as transformers stores them, [in, out]: they are transposed";
}

// Element i of [out, in] is in row i % in of the file's [in, out].
void read_conv1d(const FileTensor& tensor, uint64_t offset, uint64_t numel, float* dst) {
  const auto in = static_cast<uint64_t>(tensor.shape[0]), out = static_cast<uint64_t>(tensor.shape[1]);
  const uint64_t width = ddh_dtype_bytes(tensor.dtype);
  alignas(float) std::array<char, 4096> piece{};
  for (uint64_t done = 0; done < numel;) {
    const uint64_t n = std::min<uint64_t>(piece.size() / width, numel - done);
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t at = offset + done + i, element = at % in * out + at / in;
      std::memcpy(piece.data() + i * width, static_cast<const char*>(tensor.data) + element * width, width);
    }
    kernels::cast(dst + done, DDH_F32, piece.data(), tensor.dtype, n);
    done += n;
  }
}

}  // namespace ddhost
