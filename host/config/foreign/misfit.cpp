// SPDX-License-Identifier: Apache-2.0
//
// config/foreign/misfit.cpp: the check of one value against its key in a table.
#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/text.hpp"
#include "config/foreign/given_values.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool has_type(const ForeignKey& key, std::string_view type) {
  return std::find(key.types.begin(), key.types.end(), type) != key.types.end();
}

bool is_of_type(const ForeignKey& key, Json& value) {
  constexpr double kMostWhole = 0x1p53;
  if (value.is_null()) return has_type(key, "null") || key.preset.is_null();
  if (value.is_boolean()) return has_type(key, "boolean");
  if (value.is_array()) return has_type(key, "array");
  if (value.is_object()) return has_type(key, "open");
  if (value.is_string()) return has_type(key, "string");
  if (has_type(key, "number")) return std::isfinite(value.get<double>());
  if (!has_type(key, "integer")) return false;
  if (value.is_number_float()) {
    const double exact = value.get<double>();
    if (exact != std::floor(exact) || std::abs(exact) > kMostWhole) return false;
    value = static_cast<int64_t>(exact);
  }
  return !value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
}

std::string type_text(const ForeignKey& key) {
  std::string text;
  for (const std::string& type : key.types) {
    const std::string word = type == "boolean"   ? "true or false"
                             : type == "integer" ? "an integer"
                             : type == "number"  ? "a number"
                             : type == "array"   ? "a list"
                             : type == "null"    ? "null"
                             : type == "open"    ? "an object"
                                                 : "a text";
    text += (text.empty() ? "" : " or ") + word;
  }
  return text;
}

// A text for a truth value or a number, where the other program takes one.
void read_text(const ForeignKey& key, Json& value) {
  if (!key.takes_text) return;
  if (has_type(key, "boolean") && !has_type(key, "integer") && (value == Json(0) || value == Json(1)))
    value = value == Json(1);
  if (!value.is_string()) return;
  const std::string word = lower(value.get<std::string>());
  if (has_type(key, "boolean") && (word == "true" || word == "yes" || word == "on" || word == "1")) value = true;
  if (has_type(key, "boolean") && (word == "false" || word == "no" || word == "off" || word == "0")) value = false;
  if (!value.is_string()) return;
  const Json number = Json::parse(word, nullptr, /*allow_exceptions=*/false);
  if (number.is_number() && (has_type(key, "integer") || has_type(key, "number"))) value = number;
}

}  // namespace

std::string misfit(const ForeignKey& key, Json& value) {
  const std::string as_given = shown(value);
  if (value.is_string() && value.get<std::string>().find("${") != std::string::npos)
    return "= " + as_given + " is a placeholder of a template; fill it in";
  if (value.is_string() && value.get<std::string>().find("{{") != std::string::npos)
    return "= " + as_given + " is a placeholder of a template; fill it in";
  read_text(key, value);
  if (!is_of_type(key, value)) return "= " + as_given + " is not " + type_text(key) + "; correct it";
  const auto is_number = [](const Json& item) { return item.is_number(); };
  if (value.is_array() && key.length > 0 &&
      (value.size() != key.length || !std::all_of(value.begin(), value.end(), is_number)))
    return ddh::str("= ", as_given, " is not a list of ", key.length, " numbers; correct it");
  for (const Json& item : value.is_array() && key.length > 0 ? value : Json::array())
    if ((!key.min.is_null() && item < key.min) || (!key.max.is_null() && item > key.max))
      return ddh::str("= ", as_given, " holds a number that is not from ", key.min.dump(), " to ", key.max.dump(),
                      "; correct it");
  if (value.is_array() && value.size() > 10'000) return "is a list of more than 10000 items; shorten it";
  if (value.is_string() && key.words.is_array()) {
    std::vector<std::string> words;
    for (const Json& word : key.words) {
      words.push_back(word.get<std::string>());
      if (key.folds && lower(value.get<std::string>()) == lower(words.back())) value = word;
    }
    if (std::find(words.begin(), words.end(), value.get<std::string>()) == words.end()) {
      const std::string near = nearest(value.get<std::string>(), words);
      std::string list;
      for (const std::string& word : words) list += (list.empty() ? "" : ", ") + word;
      return "= " + as_given + " is none of " + list +
             (near.empty() ? "; give one of them" : "; did you mean " + near + "?");
    }
  }
  const auto has = [&](const Json& limit) { return !limit.is_null() && value.is_number(); };
  if (has(key.min) && value.get<double>() < key.min.get<double>())
    return "= " + as_given + " is less than " + key.min.dump() + "; give at least that";
  if (has(key.above) && value.get<double>() <= key.above.get<double>())
    return "= " + as_given + " is not above " + key.above.dump() + "; give a larger number";
  if (has(key.max) && value.get<double>() > key.max.get<double>())
    return "= " + as_given + " is more than " + key.max.dump() + "; give at most that";
  return "";
}

}  // namespace ddhost
