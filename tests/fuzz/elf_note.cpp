// SPDX-License-Identifier: Apache-2.0
//
// The headers and the note of a plugin file.
#include "plugin/elf_note.hpp"

#include "fuzz/fuzz.hpp"

using namespace ddhost;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static const fuzz::MemoryFile kFile;
  kFile.set(data, bytes);
  fuzz::may_refuse([&] { static_cast<void>(read_elf(kFile.path())); });
  return 0;
}
