// SPDX-License-Identifier: Apache-2.0
//
// config/read_json.hpp: JSON with comments. Input that would be lost silently is refused.
#pragma once

#include <stdexcept>
#include <string>

#include "config/json.hpp"

namespace ddhost {

// The error in a text, in our words.
struct JsonError : std::runtime_error {
  JsonError(const std::string& reason, size_t error_byte) : std::runtime_error(reason), byte(error_byte) {}
  size_t byte;  // counts from 1; 0: unknown
};

// Throws JsonError: not JSON, a key twice in one object, more than 64 levels, a number beyond a double.
Json read_json(const std::string& text);

}  // namespace ddhost
