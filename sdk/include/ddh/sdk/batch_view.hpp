// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/batch_view.hpp: the table of ddh.batch_view/0 for a model that shows the samples of its batches. The class has
//
//   void view(const ddh_batch* batch, uint32_t sample, const ddh::SampleParts& parts) const;   // parts.text("label", "7");
//
//   const void* interface(std::string_view id) const override {
//     return id == DDH_BATCH_VIEW_IFACE ? ddh::batch_view_table<Mine>() : Model::interface(id);
//   }
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ddh/kind/batch_view.h"
#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// The bytes of the character that begins at `at`; 0: they are not UTF-8.
inline size_t utf8_bytes(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : uint8_t{0}; };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const size_t n = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  uint32_t code = first & (0xFFU >> (n + 1));
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3FU);
  }
  constexpr std::array<uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xD800 && code < 0xE000;
  return code < kLeast.at(n) || code > 0x10FFFF || is_surrogate ? 0 : n;
}

// Any bytes as UTF-8: a byte that belongs to no character, such as one of a character that the edge of a sample cuts, becomes
// U+FFFD.
inline std::string utf8_text(std::string_view bytes) {
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    const size_t n = utf8_bytes(bytes, at);
    out += n > 0 ? bytes.substr(at, n) : "\xEF\xBF\xBD";
    at += n > 0 ? n : 1;
  }
  return out;
}

// Takes the parts of a sample, the first part first. Its functions throw where the host refuses a part.
class SampleParts {
 public:
  SampleParts(ddh_sample_sink sink, void* context) : sink_(sink), context_(context) {}

  // `bytes`: of any origin; those that are not UTF-8 become U+FFFD.
  void text(const char* name, std::string_view bytes) const {
    const std::string text = utf8_text(bytes);
    give(DDH_VIEW_TEXT, name, {text.size(), 1, 1, 1}, text.data());
  }
  // `shape`: frames, height, width, channels; channels is 1 or 3.
  void pixels(const char* name, const std::array<uint64_t, 4>& shape, const std::vector<uint8_t>& values) const {
    give(DDH_VIEW_PIXELS, name, shape, values.data());
  }
  void values(const char* name, const std::array<uint64_t, 4>& shape, const float* values) const {
    give(DDH_VIEW_VALUES, name, shape, values);
  }

 private:
  void give(int32_t kind, const char* name, const std::array<uint64_t, 4>& shape, const void* data) const {
    const ddh_sample_part part{sizeof(ddh_sample_part), kind, name, {shape[0], shape[1], shape[2], shape[3]}, data};
    call(sink_, context_, &part);
  }

  const ddh_sample_sink sink_;
  void* const context_;
};

template <class Self>
const ddh_batch_view_api* batch_view_table() {
  static const ddh_batch_view_api table = {
      sizeof(ddh_batch_view_api),
      0,
      [](ddh_inst* i, const ddh_batch* batch, uint32_t sample, ddh_sample_sink sink, void* context,
         ddh_err* err) noexcept {
        return guard(err, [&] { self_as<Self>(i).view(batch, sample, SampleParts(sink, context)); });
      },
  };
  return &table;
}

}  // namespace DDH_HIDDEN
}  // namespace ddh
