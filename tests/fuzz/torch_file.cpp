// SPDX-License-Identifier: Apache-2.0
//
// A file of torch.save: the zip archive, its pickle, and the places of its tensors.
#include "foreign_checkpoint.hpp"
#include "fuzz/fuzz.hpp"

using namespace ddhost;
using namespace torch_format;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static const fuzz::MemoryFile kFile;
  kFile.set(data, bytes);
  fuzz::may_refuse([&] {
    ForeignCheckpoint checkpoint;
    read_torch_file(kFile.path(), checkpoint);
    unsigned sum = 0;
    for (const auto& [name, tensor] : checkpoint.weights)
      for (uint64_t i = 0; i < tensor.bytes; ++i) sum += static_cast<const unsigned char*>(tensor.data)[i];
    if (checkpoint.weights.empty() && sum != 0) std::abort();
  });
  return 0;
}
