// SPDX-License-Identifier: Apache-2.0
//
// base/json.hpp: the JSON type of the host, and a reader for JSON that is not trusted. Input that would be lost
// silently is refused, and limits keep the time and the memory in proportion to the length of the text.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "base/text.hpp"

namespace ddhost {

using Json = nlohmann::ordered_json;

// JSON in one line without its end, and as a file or a command prints it. Bytes that are no UTF-8 become U+FFFD.
std::string json_line(const Json& value);
std::string json_document(const Json& value);

// A value as messages show it.
inline std::string shown(const Json& value) { return plain_text(json_line(value), kShownValue); }

// The error in a text, in our words.
struct JsonError : std::runtime_error {
  JsonError(const std::string& reason, size_t error_byte) : std::runtime_error(reason), byte(error_byte) {}
  size_t byte;  // counts from 1; 0: unknown
};

// The JSON library's explanation, without its error number and position.
std::string reason_of(const nlohmann::json::exception& error);

// Comments are allowed. Throws JsonError: not JSON, a key twice in one object, a NUL byte, more than 64 levels, more than
// `most_keys` in one object (keeping their order takes quadratic time), a number beyond a double.
nlohmann::ordered_json read_json(const std::string& text, size_t most_keys = 10'000);

// For files of tensors: any number of keys, which are sorted; no comments.
nlohmann::json read_sorted_json(const std::string& text);

}  // namespace ddhost
