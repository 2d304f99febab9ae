// SPDX-License-Identifier: Apache-2.0
#include "engine/calls/plugin_caller.hpp"

#include <algorithm>
#include <string_view>

#include "base/text.hpp"

namespace ddhost {
namespace {

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
  return plain_text({text_.data(), bytes});
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
