// SPDX-License-Identifier: Apache-2.0
#include "config/foreign/rules.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string_view>

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

// Whether a value is on, as these programs read it: 1 and "true" are, and texts that say no are not.
bool is_on(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  if (!value.is_string()) return !value.is_null() && !value.empty();
  std::string word;
  for (const char c : value.get_ref<const std::string&>())
    word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  constexpr std::string_view kOff[] = {"", "false", "0", "no", "off", "none", "null", "auto"};
  return std::find(std::begin(kOff), std::end(kOff), word) == std::end(kOff);
}

bool is_same(const Json& value, const Json& wanted) {
  return wanted.is_boolean() ? is_on(value) == wanted.get<bool>() : value == wanted;
}

// Whether `value` or something below it holds the entry, such as {"enabled": true}.
bool holds(const Json& value, const std::string& key, const Json& wanted) {
  if (value.is_object() && value.contains(key) && is_same(value[key], wanted)) return true;
  return value.is_structured() &&
         std::any_of(value.begin(), value.end(), [&](const Json& below) { return holds(below, key, wanted); });
}

// Whether the switch of an object is on, and one of those directly below it, if there are any.
bool is_switched_on(const Json& value, const std::string& key) {
  if (!value.is_object() || !value.contains(key) || !is_on(value[key])) return false;
  bool has_switch = false, is_any_on = false;
  for (const Json& below : value) {
    if (!below.is_object() || !below.contains(key)) continue;
    has_switch = true;
    is_any_on = is_any_on || is_switched_on(below, key);
  }
  return !has_switch || is_any_on;
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
  if (rule.is->is_object() && rule.is->contains("on"))
    return is_switched_on(value, (*rule.is)["on"].get<std::string>());
  if (!rule.is->is_object() || !rule.is->contains("holds")) return is_wanted(value, *rule.is);
  const Json& entry = (*rule.is)["holds"];
  return holds(value, entry.begin().key(), *entry.begin());
}

bool is_for_version(const ForeignRule& rule, const std::string& version) {
  return rule.before.empty() || is_before(version, rule.before);
}

std::string condition_in_words(const Json& wanted) {
  if (wanted.is_null()) return "not given";
  if (wanted.is_object() && wanted.contains("above")) return "above " + wanted["above"].dump();
  if (wanted.is_object() && wanted.contains("not")) {
    const Json& without = wanted["not"];
    const bool is_given_alone = without.is_null() || without == Json::array({nullptr});
    return is_given_alone ? "given" : "other than " + condition_in_words(without);
  }
  if (!wanted.is_array()) return wanted.is_string() ? wanted.get<std::string>() : wanted.dump();
  std::string text;
  for (const Json& one : wanted) text += (text.empty() ? "" : " or ") + condition_in_words(one);
  return text;
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
