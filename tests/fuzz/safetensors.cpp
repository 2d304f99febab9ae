// SPDX-License-Identifier: Apache-2.0
//
// A safetensors file: its header, and that each tensor lies within the file.
#include "checkpoint/safetensors.hpp"

#include "fuzz/fuzz.hpp"

using namespace ddhost;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz::may_refuse([&] {
    const std::string file = fuzz::text_of(data, bytes);
    uint64_t sum = 0, total = 0;
    for (const auto& [name, tensor] : parse_safetensors(file, "fuzz.safetensors")) {
      total += tensor.bytes;
      for (uint64_t i = 0; i < tensor.bytes; ++i) sum += static_cast<const unsigned char*>(tensor.data)[i];
    }
    if (total >= file.size()) std::abort();               // tensors overlap
    [[maybe_unused]] volatile const uint64_t read = sum;  // so that the bytes are read
  });
  return 0;
}
