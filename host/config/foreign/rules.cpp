// SPDX-License-Identifier: Apache-2.0
#include "config/foreign/rules.hpp"

#include <algorithm>
#include <cmath>

namespace ddhost {
namespace {

// Whether a value is the wanted one, or one of several; {"not": ...}, {"above": 0}.
bool is_wanted(const Json& value, const Json& wanted) {
  if (wanted.is_object()) {
    if (wanted.contains("not")) return !is_wanted(value, wanted["not"]);
    return value.is_number() && value.get<double>() > wanted.at("above").get<double>();
  }
  if (!wanted.is_array()) return value == wanted;
  // A list is a choice of values, and a value that is a list itself is one of them.
  return std::any_of(wanted.begin(), wanted.end(), [&](const Json& one) { return is_wanted(value, one); });
}

// Whether `value` or something below it holds the entry, such as {"enabled": true}.
bool holds(const Json& value, const std::string& key, const Json& wanted) {
  if (value.is_object() && value.contains(key) && value[key] == wanted) return true;
  return value.is_structured() &&
         std::any_of(value.begin(), value.end(), [&](const Json& below) { return holds(below, key, wanted); });
}

Json times(const Json& value, double factor) {
  if (factor == 1 || !value.is_number()) return value;
  const double exact = value.get<double>() * factor;
  constexpr double kMost = 0x1p62;  // more counts as this: all there is
  return exact == std::floor(exact) ? Json(static_cast<int64_t>(std::clamp(exact, -kMost, kMost))) : Json(exact);
}

}  // namespace

bool conditions_hold(const Json& when, const ForeignValues& values) {
  const auto items = when.items();
  return std::all_of(items.begin(), items.end(),
                     [&](const auto& item) { return is_wanted(values(item.key()), item.value()); });
}

bool is_for_value(const ForeignRule& rule, const Json& value) {
  if (!rule.is) return true;
  if (!rule.is->is_object() || !rule.is->contains("holds")) return is_wanted(value, *rule.is);
  const Json& entry = (*rule.is)["holds"];
  return holds(value, entry.begin().key(), *entry.begin());
}

Json our_value(const ForeignRule& rule, const Json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (rule.values.is_object() && rule.values.contains(text)) return rule.values[text];
  return times(value, rule.factor);
}

std::optional<Json> their_value(const ForeignRule& rule, const Json& ours) {
  if (rule.values.is_object())
    for (const auto& [text, value] : rule.values.items())
      if (value == ours) return Json(text);
  const Json value = times(ours, 1 / rule.factor);
  return our_value(rule, value) == ours ? std::optional(value) : std::nullopt;
}

}  // namespace ddhost
