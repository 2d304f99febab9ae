// SPDX-License-Identifier: Apache-2.0
//
// manifest.json of a checkpoint. What is accepted can be written again.
#include "checkpoint/manifest.hpp"

#include "fuzz/fuzz.hpp"

using namespace ddhost;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz::may_refuse(
      [&] { static_cast<void>(manifest_text(parse_manifest(fuzz::text_of(data, bytes), "manifest.json"))); });
  return 0;
}
