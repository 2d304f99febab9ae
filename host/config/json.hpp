// SPDX-License-Identifier: Apache-2.0
//
// config/json.hpp: the JSON type of the host. Objects keep the order of their keys, so output has the order of the
// input.
#pragma once

#include <nlohmann/json.hpp>

namespace ddhost {
using Json = nlohmann::ordered_json;
}  // namespace ddhost
