// SPDX-License-Identifier: Apache-2.0
//
// config/foreign/rules.hpp: which rule of a key applies to a value, and what it makes of the value.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "config/foreign/table.hpp"

namespace ddhost {

// The value of another key of the table.
using ForeignValues = std::function<Json(const std::string& name)>;

// Whether all conditions on other keys hold.
bool conditions_hold(const Json& when, const ForeignValues& values);

// Whether a rule is for this value of the key itself.
bool is_for_value(const ForeignRule& rule, const Json& value);

// Whether a rule is for this version of the program.
bool is_for_version(const ForeignRule& rule, const std::string& version);

// A condition in words: "AdamW or Lion", "not given", "any but SGD".
std::string condition_in_words(const Json& wanted);

// Our value for theirs.
Json our_value(const ForeignRule& rule, const Json& value);

// Their value for ours; nullopt: there is none.
std::optional<Json> their_value(const ForeignRule& rule, const Json& ours);

}  // namespace ddhost
