// SPDX-License-Identifier: Apache-2.0
//
// Files of other programs: JSON as people write it, and YAML.
#include "config/foreign/text.hpp"

#include "base/text.hpp"
#include "fuzz/fuzz.hpp"

using namespace ddhost;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::string text = fuzz::text_of(data, bytes);
  if (!is_utf8(text)) return 0;  // refused before
  for (const auto& read : {read_relaxed_json, read_yaml}) {
    try {
      static_cast<void>(read(text).root.dump());
    } catch (const ForeignTextError&) {
    }
  }
  return 0;
}
