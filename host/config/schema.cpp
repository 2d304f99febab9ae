// SPDX-License-Identifier: Apache-2.0
//
// config/schema.cpp: reading schemas and checking values.
#include "config/schema.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <span>
#include <sstream>

#include "base/json.hpp"
#include "base/text.hpp"
#include "config/words.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr std::array kTypes = {"integer", "number", "string", "boolean", "array", "object", "null"};
// The schema language has versions (docs/configuration.md). x-schema is the version that a schema needs.
constexpr int64_t kSchemaVersion = 1;
constexpr std::array kKeywords = {"type",     "enum",     "minimum", "maximum",     "exclusiveMinimum", "default",
                                  "title",    "items",    "x-unit",  "x-path",      "description",      "x-sets",
                                  "minItems", "maxItems", "x-idle",  "x-spellings", "x-affects"};
// x-less-memory is of earlier versions, and has no effect.
constexpr std::array kRootKeywords = {"type",      "title",    "description",  "properties",
                                      "x-aliases", "x-schema", "x-less-memory"};
constexpr std::array kObjectKeywords = {"type", "title", "description", "properties"};

// The error for an ill-formed schema: it is the plugin author's mistake, not the user's.
[[noreturn]] void ill_formed(const std::string& owner, const std::string& what) {
  ddh::fail(DDH_INVALID_ARGUMENT, "the config schema of ", owner, " is ill-formed: ", what, "; fix the plugin");
}

// Keywords of other programs contain a reversed domain name ("x-org.example.colour") and are ignored.
void check_keywords(const Json& node, std::span<const char* const> known, const std::string& owner,
                    const std::string& where) {
  for (const auto& [keyword, unused] : node.items()) {
    const bool is_foreign = keyword.starts_with("x-") && keyword.find('.') != std::string::npos;
    if (is_foreign || std::find(known.begin(), known.end(), keyword) != known.end()) continue;
    ill_formed(owner,
               ddh::str(where, " uses '", keyword, "', which version ", kSchemaVersion,
                        " of the schema language does not allow there (the newest version that this ddhost knows)"));
  }
}

bool known_type(const std::string& type) { return std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end(); }

bool has_type(const Json& value, std::string_view type) {
  if (type == "integer") {
    if (value.is_number_integer()) return !value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX;
    return value.is_number_float() && std::nearbyint(value.get<double>()) == value.get<double>() &&
           std::abs(value.get<double>()) < 0x1p63;
  }
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  return type == "null" && value.is_null();
}

std::vector<std::string> read_types(const Json& node, const std::string& owner, const std::string& name) {
  std::vector<std::string> types;
  if (!node.contains("type")) ill_formed(owner, "'" + name + "' has no type");
  const Json& type = node["type"];
  if (type.is_string()) types.push_back(type.get<std::string>());
  for (const Json& one : type.is_array() ? type : Json::array()) {
    if (!one.is_string()) ill_formed(owner, "a type of '" + name + "' is not a string");
    types.push_back(one.get<std::string>());
  }
  if (types.empty()) ill_formed(owner, "the type of '" + name + "' is neither a string nor a list of strings");
  for (const std::string& one : types)
    if (!known_type(one)) ill_formed(owner, "'" + name + "' has the unknown type '" + one + "'");
  return types;
}

std::optional<double> read_number(const Json& node, const char* keyword, const std::string& owner,
                                  const std::string& name) {
  if (!node.contains(keyword)) return std::nullopt;
  if (!node[keyword].is_number()) ill_formed(owner, ddh::str(keyword, " of '", name, "' is not a number"));
  return node[keyword].get<double>();
}

std::optional<uint64_t> read_count(const Json& node, const char* keyword, const std::string& owner,
                                   const std::string& name) {
  const std::optional<double> number = read_number(node, keyword, owner, name);
  if (!number) return std::nullopt;
  constexpr double kMost = 1e9;
  if (*number < 0 || *number > kMost || *number != std::floor(*number))
    ill_formed(owner, ddh::str(keyword, " of '", name, "' is no count"));
  return static_cast<uint64_t>(*number);
}

std::string read_text(const Json& node, const char* keyword, const std::string& owner, const std::string& name) {
  if (!node.contains(keyword)) return "";
  if (!node[keyword].is_string()) ill_formed(owner, ddh::str(keyword, " of '", name, "' is not a string"));
  return node[keyword].get<std::string>();
}

void check_limits(const Option& option, const std::string& owner) {
  const bool no_number = option.maximum && ((option.minimum && *option.minimum > *option.maximum) ||
                                            (option.above && *option.above >= *option.maximum));
  const bool no_count = option.min_items && option.max_items && *option.min_items > *option.max_items;
  if (no_number || no_count) ill_formed(owner, "no value fits the limits of '" + option.name + "'");
}

Option read_option(const Json& node, const std::string& owner, const std::string& name) {
  check_keywords(node, kKeywords, owner, "'" + name + "'");
  Option option;
  option.name = name;
  option.types = read_types(node, owner, name);
  option.minimum = read_number(node, "minimum", owner, name);
  option.maximum = read_number(node, "maximum", owner, name);
  option.above = read_number(node, "exclusiveMinimum", owner, name);
  option.min_items = read_count(node, "minItems", owner, name);
  option.max_items = read_count(node, "maxItems", owner, name);
  check_limits(option, owner);
  option.unit = read_text(node, "x-unit", owner, name);
  option.description = read_text(node, "description", owner, name);
  if (node.contains("items")) {
    const std::vector<std::string> types =
        node["items"].is_object() ? read_types(node["items"], owner, name + "[]") : std::vector<std::string>{};
    if (types.size() != 1) ill_formed(owner, "items of '" + name + "' must be an object with one type");
    option.item_type = types[0];
  }
  if (node.contains("enum")) {
    option.legal = node["enum"];
    if (!option.legal.is_array() || option.legal.empty()) ill_formed(owner, "enum of '" + name + "' is not a list");
  }
  if (node.contains("x-path")) {
    if (!node["x-path"].is_boolean()) ill_formed(owner, "x-path of '" + name + "' is neither true nor false");
    option.is_path = node["x-path"].get<bool>();
  }
  option.idle = read_text(node, "x-idle", owner, name);
  option.sets = read_text(node, "x-sets", owner, name);
  if (node.contains("x-sets")) {
    if (option.sets.find('.') == std::string::npos)
      ill_formed(owner, "x-sets of '" + name + "' is not a key with its section");
    if (!option.takes("null")) option.types.emplace_back("null");
  }
  if (node.contains("x-spellings")) {
    option.spellings = node["x-spellings"];
    if (!option.spellings.is_object()) ill_formed(owner, "x-spellings of '" + name + "' is not an object");
  }
  if (node.contains("default"))
    option.preset = checked_value(option, node["default"], name, "in the schema of " + owner);
  return option;
}

void read_properties(const Json& node, const std::string& owner, const std::string& prefix, Schema& schema) {
  if (!node.contains("properties")) return;
  if (!node["properties"].is_object()) ill_formed(owner, "properties is not an object");
  for (const auto& [key, child] : node["properties"].items()) {
    const std::string name = prefix + key;
    if (key.empty()) ill_formed(owner, "an option of '" + prefix + "' has an empty name");
    if (schema.find(name) != nullptr) ill_formed(owner, "the option '" + name + "' occurs twice");
    if (!child.is_object()) ill_formed(owner, "'" + name + "' is not an object");
    if (child.value("type", Json()) == Json("object")) {
      check_keywords(child, kObjectKeywords, owner, "'" + name + "'");
      read_properties(child, owner, name + ".", schema);
    } else {
      schema.options.push_back(read_option(child, owner, name));
    }
  }
}

Json read_root(const char* text, const std::string& owner) {
  try {
    return read_json(text);
  } catch (const JsonError& error) {
    ill_formed(owner, error.what());
  }
}

void check_version(const Json& root, const std::string& owner) {
  if (!root.contains("x-schema")) return;
  if (!root["x-schema"].is_number_integer() || root["x-schema"] < 1)
    ill_formed(owner, "x-schema is not an integer of at least 1");
  if (root["x-schema"] > kSchemaVersion)
    ddh::fail(DDH_FAILED_PRECONDITION, "the config schema of ", owner, " needs version ", shown(root["x-schema"]),
              " of the schema language, but this ddhost knows version ", kSchemaVersion, "; update ddhost");
}

void read_aliases(const Json& root, const std::string& owner, Schema& schema) {
  if (!root.contains("x-aliases")) return;
  if (!root["x-aliases"].is_object()) ill_formed(owner, "x-aliases is not an object");
  for (const auto& [name, target] : root["x-aliases"].items()) {
    if (!target.is_object()) ill_formed(owner, "the alias '" + name + "' is not an object");
    Alias alias;
    alias.name = name;
    alias.key = read_text(target, "key", owner, name);
    alias.scale = read_number(target, "scale", owner, name).value_or(1.0);
    if (name.empty() || schema.find(name) != nullptr)
      ill_formed(owner, "the alias '" + name + "' has an empty name, or the name of another option");
    if (schema.find(alias.key) == nullptr)
      ill_formed(owner, "the alias '" + name + "' names '" + alias.key + "', which is not an option");
    if (!schema.find(alias.key)->sets.empty())
      ill_formed(owner, "the alias '" + name + "' names '" + alias.key + "', which has x-sets; give it x-sets too");
    schema.aliases.push_back(std::move(alias));
  }
}

// The value that is checked, and the words for it in messages.
struct Said {
  const std::string &key, &where;
  std::string value;
};

// " (did you mean bf16?)": the legal value that another program calls so, or the nearest one; "": none is near.
std::string hint_for(const Option& option, const Json& value, const std::string& key) {
  const std::string word = value.is_string() ? value.get<std::string>() : value.dump();
  std::vector<std::string> legal;
  for (const Json& one : option.legal)
    if (one.is_string()) legal.push_back(one.get<std::string>());
  if (const std::string ours = legal_value(key, word, legal); !ours.empty()) return " (here it is " + ours + ")";
  if (const std::string near = nearest(word, legal); !near.empty()) return " (did you mean " + near + "?)";
  const std::string theirs = nearest_value_word(key, word), ours = legal_value(key, theirs, legal);
  return ours.empty() ? "" : " (if it means " + theirs + ", here it is " + ours + ")";
}

// " (write '[0.9,0.95]')" for "0.9, 0.95" and "(0.9,0.95)"; "": an item is of another type.
std::string list_hint(const Option& option, std::string text) {
  text.erase(std::remove_if(text.begin(), text.end(), [](char c) { return c == '(' || c == ')' || c == ' '; }),
             text.end());
  Json list = Json::array();
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    const Json one = Json::parse(json_number(item), nullptr, /*allow_exceptions=*/false);
    if (option.item_type != "string" && !one.is_number()) return "";
    list.push_back(option.item_type == "string" ? Json(item) : one);
  }
  return " (write '" + plain_text(list.dump(), kShownValue) + "')";
}

// " (write true)": what a value of another type may have meant; "": not known.
std::string form_hint(const Option& option, const Json& value, const std::string& key) {
  if (!option.legal.is_null()) return hint_for(option, value, key);
  std::string word = value.is_string() ? value.get<std::string>() : value.dump();
  if (option.takes("array") && value.is_string() && word.find(',') != std::string::npos) return list_hint(option, word);
  if (!option.takes("boolean")) return "";
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const auto& [on, off] : {std::pair("true", "false"), {"yes", "no"}, {"on", "off"}, {"1", "0"}, {"y", "n"}}) {
    if (word == on) return " (write true)";
    if (word == off) return " (write false)";
  }
  return "";
}

[[noreturn]] void refuse(const Option& option, const Json& value, const Said& said, const std::string& why) {
  const std::string legal = option.legal_text();
  std::string words;  // other spellings of numbers: eval_batches=all
  if (option.legal.is_null() && option.spellings.is_object())
    for (const auto& [word, meaning] : option.spellings.items())
      if (word != "null") words += " or " + word;
  const std::string type = option.takes("boolean") && option.types.size() == 1 ? "true or false" : option.type_text();
  const bool has_one_value = option.legal.is_array() && option.legal.size() == 1;
  ddh::fail(DDH_INVALID_ARGUMENT, said.key, " = ", said.value, " ", said.where, " ", why, "; it takes ", type, words,
            legal.empty() ? "" : ", ", legal, has_one_value ? " (" + option.description + ")" : "",
            value == Json("auto") ? "; leave it out for the default" : "");
}

// Whether the number is integral, but not one of 64 bits.
bool is_beyond_integers(const Json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>() > INT64_MAX;
  return value.is_number_float() && std::abs(value.get<double>()) >= 0x1p63;
}

// "1e400": no double, so it was read as a text.
bool is_beyond_numbers(const Json& value) {
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc::result_out_of_range && end == text.data() + text.size();
}

// The limit of the type, where the option has none of its own in this direction.
std::string beyond_integers(const Option& option, const Json& value) {
  const std::string why = "is out of range";
  if (value.get<double>() < 0)
    return option.minimum || option.above ? why : why + ddh::str(" (integers begin at ", INT64_MIN, ")");
  return option.maximum ? why : why + ddh::str(" (integers end at ", INT64_MAX, ")");
}

void check_range(const Option& option, const Json& value, const Said& said) {
  const double number = value.get<double>();
  const bool inside = (!option.minimum || number >= *option.minimum) &&
                      (!option.maximum || number <= *option.maximum) && (!option.above || number > *option.above);
  if (!inside) refuse(option, value, said, "is out of range");
}

void check_array(const Option& option, const Json& value, const Said& said) {
  const bool count_fits = (!option.min_items || value.size() >= *option.min_items) &&
                          (!option.max_items || value.size() <= *option.max_items);
  if (!count_fits) refuse(option, value, said, ddh::str("has ", value.size(), " items"));
  if (option.item_type.empty()) return;
  for (const Json& item : value) {
    if (has_type(item, option.item_type)) continue;
    const bool is_beyond = option.item_type == "integer" && is_beyond_integers(item);
    refuse(option, value, said, "holds " + shown(item) + (is_beyond ? ", which " + beyond_integers({}, item) : ""));
  }
}

}  // namespace

bool Option::takes(std::string_view type) const { return std::find(types.begin(), types.end(), type) != types.end(); }

std::string Option::type_text() const {
  std::string text;
  for (const std::string& type : types) text += (text.empty() ? "" : " or ") + type;
  if (!item_type.empty()) text += " of " + item_type;
  return text;
}

std::string Option::legal_text() const {
  std::string text;
  if (!legal.is_null()) {
    for (const Json& value : legal) {
      text += text.empty() ? "one of " : ", ";
      text += value.is_string() ? value.get<std::string>() : value.dump();
    }
  } else if (above) {
    text = "above " + number_text(*above);
    if (maximum) text += ", at most " + number_text(*maximum);
  } else if (minimum && maximum) {
    text = number_text(*minimum) + " to " + number_text(*maximum);
  } else if (minimum) {
    text = "at least " + number_text(*minimum);
  } else if (maximum) {
    text = "at most " + number_text(*maximum);
  }
  if (min_items && max_items && *min_items == *max_items) {
    text += ddh::str(text.empty() ? "" : ", ", *min_items, " items");
  } else if (min_items || max_items) {
    text += ddh::str(text.empty() ? "" : ", ", min_items.value_or(0), " or more items");
    if (max_items) text += ddh::str(", at most ", *max_items);
  }
  return text;
}

const Option* Schema::find(std::string_view name) const {
  const auto at = std::find_if(options.begin(), options.end(), [&](const Option& o) { return o.name == name; });
  return at == options.end() ? nullptr : &*at;
}

const Alias* Schema::find_alias(std::string_view name) const {
  const auto at = std::find_if(aliases.begin(), aliases.end(), [&](const Alias& a) { return a.name == name; });
  return at == aliases.end() ? nullptr : &*at;
}

Schema parse_schema(const char* text, const std::string& owner) {
  Schema schema;
  if (text == nullptr || *text == '\0') return schema;
  const Json root = read_root(text, owner);
  if (!root.is_object()) ill_formed(owner, "it is not a JSON object");
  check_version(root, owner);
  check_keywords(root, kRootKeywords, owner, "it");
  read_properties(root, owner, "", schema);
  read_aliases(root, owner, schema);
  return schema;
}

Json checked_value(const Option& option, Json value, const std::string& key, const std::string& where,
                   const std::string& written) {
  const Said said = {key, where, written.empty() ? shown(value) : plain_text(written, kShownValue)};
  if ((value.is_string() || value.is_null()) && option.spellings.is_object()) {
    const auto word = option.spellings.find(value.is_null() ? "null" : value.get<std::string>());
    if (word != option.spellings.end()) value = *word;
  }
  const bool type_fits = std::any_of(option.types.begin(), option.types.end(),
                                     [&](const std::string& type) { return has_type(value, type); });
  if (!type_fits && option.takes("integer") && is_beyond_integers(value))
    refuse(option, value, said, beyond_integers(option, value));
  if (!type_fits && option.takes("number") && is_beyond_numbers(value))
    refuse(option, value, said, "is beyond the range of numbers");
  if (!type_fits) refuse(option, value, said, "has the wrong type" + form_hint(option, value, key));
  // 2e3 for an integer: the getters return 2000.
  if (value.is_number_float() && option.takes("integer") && !option.takes("number"))
    value = static_cast<int64_t>(value.get<double>());
  if (value.is_number_float() && !std::isfinite(value.get<double>())) refuse(option, value, said, "is not finite");
  if (!option.legal.is_null() && std::find(option.legal.begin(), option.legal.end(), value) == option.legal.end())
    refuse(option, value, said, "is not a legal value" + hint_for(option, value, key));
  if (value.is_number()) check_range(option, value, said);
  if (value.is_array()) check_array(option, value, said);
  return value;
}

}  // namespace ddhost
