// SPDX-License-Identifier: Apache-2.0
#include "engine/calls/plugin_caller.hpp"

#include <algorithm>
#include <string_view>

namespace ddhost {
namespace {

// The length of the UTF-8 character at `text`; 0: it is not valid.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  // Overlong encodings, surrogates, and values beyond the last character.
  const unsigned char second = byte(1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0)) return 0;
  if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90)) return 0;
  return length;
}

std::string readable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text.front());
    const bool is_control = (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F;
    if (length == 0 || is_control)
      out += '?';
    else
      out.append(text.substr(0, length));
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

struct CodeName {
  ddh_rc code;
  const char* name;
};
#define DDH_CODE(name) \
  { name, #name }
constexpr CodeName kCodes[] = {DDH_CODE(DDH_CANCELLED),
                               DDH_CODE(DDH_INVALID_ARGUMENT),
                               DDH_CODE(DDH_DEADLINE_EXCEEDED),
                               DDH_CODE(DDH_NOT_FOUND),
                               DDH_CODE(DDH_ALREADY_EXISTS),
                               DDH_CODE(DDH_PERMISSION_DENIED),
                               DDH_CODE(DDH_RESOURCE_EXHAUSTED),
                               DDH_CODE(DDH_FAILED_PRECONDITION),
                               DDH_CODE(DDH_ABORTED),
                               DDH_CODE(DDH_OUT_OF_RANGE),
                               DDH_CODE(DDH_UNIMPLEMENTED),
                               DDH_CODE(DDH_INTERNAL),
                               DDH_CODE(DDH_UNAVAILABLE),
                               DDH_CODE(DDH_DATA_LOSS)};
#undef DDH_CODE

}  // namespace

std::string CallError::text() const {
  const auto* const end = std::find(text_.begin(), text_.end(), '\0');
  auto bytes = static_cast<size_t>(end - text_.begin());
  // The length is used if it is possible and there is no NUL before it.
  if (err_.msg_len > 0 && err_.msg_len < bytes) bytes = static_cast<size_t>(err_.msg_len);
  return readable({text_.data(), bytes});
}

std::string code_name(ddh_rc code) {
  for (const CodeName& known : kCodes)
    if (known.code == code) return ddh::str(known.name, " (", code, ")");
  if (code >= DDH_VENDOR_FIRST) return ddh::str("the vendor's code ", code);
  return ddh::str("the unknown code ", code);
}

std::string PluginCaller::where(PluginCall call, const UnitName& unit) const {
  std::string text = ddh::str(name_, ", ", call_name(call));
  if (unit.name != nullptr) text += ddh::str(" of unit '", unit.name, "'");
  return text + ": ";
}

void PluginCaller::failed(PluginCall call, const UnitName& unit, ddh_rc code, const CallError& error) const {
  const std::string reason = error.text();
  throw ddh::Error(code, where(call, unit) + (reason.empty() ? ddh::str("failed with ", code_name(code),
                                                                        " and gave no reason; fix the plugin")
                                                             : reason));
}

}  // namespace ddhost
