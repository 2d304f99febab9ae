// SPDX-License-Identifier: Apache-2.0
//
// cad_mllm/text.hpp: a tokenizer of bytes. Ids 0 to 255 are bytes; then padding and the mark that ends a sequence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cad {

inline constexpr int64_t kPad = 256, kEnd = 257, kVocab = 258;

inline void append_bytes(std::vector<int64_t>& ids, const std::string& text) {
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
}

// Bytes alone: without padding and end marks.
inline std::string text_of(const std::vector<int64_t>& ids) {
  std::string text;
  for (const int64_t id : ids) {
    if (id < kPad) text.push_back(static_cast<char>(static_cast<unsigned char>(id)));
  }
  return text;
}

}  // namespace cad
