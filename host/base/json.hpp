// SPDX-License-Identifier: Apache-2.0
//
// base/json.hpp: the JSON type of the host. Objects keep the order of their keys, so output has the order of the
// input.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/text.hpp"

namespace ddhost {
using Json = nlohmann::ordered_json;

// A value as messages show it.
inline std::string shown(const Json& value) {
  return plain_text(value.dump(-1, ' ', false, Json::error_handler_t::replace), kShownValue);
}

}  // namespace ddhost
