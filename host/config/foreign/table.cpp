// SPDX-License-Identifier: Apache-2.0
#include "config/foreign/table.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

[[noreturn]] void table_is_ill_formed(const std::string& file, const std::string& key, const std::string& what) {
  ddh::fail(DDH_INVALID_ARGUMENT, "the table of files ", file, " is ill-formed: '", key, "' ", what, "; fix the table");
}

std::vector<std::string> texts_of(const Json& value) {
  std::vector<std::string> all;
  if (value.is_string()) all.push_back(value.get<std::string>());
  if (value.is_array())
    for (const Json& item : value) all.push_back(item.get<std::string>());
  return all;
}

constexpr const char* kActions[] = {"to", "gives", "append", "part_of", "no_effect", "refuse", "hand_to", "file_of"};

ForeignRule rule_of(const std::string& file, const std::string& key, const Json& from) {
  for (const auto& item : from.items()) {
    const std::string& field = item.key();
    constexpr std::string_view kKnown[] = {"when", "is", "given", "before", "factor", "values"};
    const auto is_it = [&](std::string_view name) { return name == field; };
    if (std::none_of(std::begin(kKnown), std::end(kKnown), is_it) &&
        std::none_of(std::begin(kActions), std::end(kActions), is_it))
      table_is_ill_formed(file, key, "has a rule with an unknown field '" + field + "'");
  }
  if (std::none_of(std::begin(kActions), std::end(kActions), [&](const char* name) { return from.contains(name); }))
    table_is_ill_formed(file, key, "has a rule that says nothing");
  ForeignRule rule;
  rule.when = from.value("when", Json::object());
  if (from.contains("is")) rule.is = from["is"];
  rule.only_given = from.value("given", false);
  rule.before = from.value("before", "");
  rule.to = from.value("to", "");
  rule.factor = from.value("factor", 1.0);
  rule.values = from.value("values", Json());
  rule.gives = from.value("gives", Json());
  rule.append = from.value("append", Json());
  rule.part_of = from.value("part_of", Json());
  rule.no_effect = from.value("no_effect", "");
  rule.refuse = from.value("refuse", "");
  rule.hand_to = from.value("hand_to", "");
  rule.file_of = from.value("file_of", "");
  return rule;
}

ForeignKey key_of(const std::string& file, const std::string& name, const Json& from) {
  ForeignKey key;
  key.name = name;
  key.types = texts_of(from.value("type", Json("string")));
  key.fields = texts_of(from.value("fields", Json()));
  key.also = texts_of(from.value("also", Json()));
  key.stands_for = from.value("stands_for", "");
  key.stands_as = from.value("stands_as", Json());
  key.preset = from.value("default", Json());
  key.words = from.value("words", Json());
  key.folds = from.value("folds", false);
  key.min = from.value("min", Json());
  key.above = from.value("above", Json());
  key.max = from.value("max", Json());
  key.length = from.value("length", uint64_t{0});
  key.takes_text = from.value("takes_text", false);
  key.automatic = from.value("auto", Json());
  key.line = from.value("line", Json());
  key.only = from.value("only", Json());
  key.removed = from.value("removed", "");
  for (const Json& rule : from.value("rules", Json::array())) key.rules.push_back(rule_of(file, name, rule));
  if (std::any_of(std::begin(kActions), std::end(kActions),
                  [&](const char* action) { return from.contains(action); })) {
    Json only = from;
    for (const char* field : {"type", "fields", "also", "default", "words", "folds", "min", "above", "max", "length",
                              "takes_text", "auto", "line", "only", "removed", "rules"})
      only.erase(field);
    key.rules.push_back(rule_of(file, name, only));
  }
  if (key.rules.empty() && key.stands_for.empty()) table_is_ill_formed(file, name, "has no rule");
  return key;
}

}  // namespace

Json ForeignKey::preset_in(const std::string& version) const {
  const bool by_version = preset.is_array() && !preset.empty() && preset.front().is_object();
  if (!by_version) return preset;
  for (const Json& entry : preset)
    if (!entry.contains("before") || is_before(version, entry["before"].get<std::string>())) return entry["value"];
  return nullptr;
}

const ForeignKey* ForeignTable::find(std::string_view name) const {
  const auto at = std::find_if(keys.begin(), keys.end(), [&](const ForeignKey& key) { return key.name == name; });
  return at == keys.end() ? nullptr : &*at;
}

bool ForeignTable::has_below(const std::string& name) const {
  return std::any_of(keys.begin(), keys.end(), [&](const ForeignKey& key) { return key.name.starts_with(name + "."); });
}

ForeignTable read_foreign_table(const std::string& file, const std::string& text) {
  Json root;
  try {
    root = read_json(text);
  } catch (const JsonError& error) {
    table_is_ill_formed(file, "", error.what());
  }
  try {
    ForeignTable table;
    table.format = root.at("format").get<std::string>();
    table.program = root.at("program").get<std::string>();
    table.is = root.at("is").get<std::string>();
    table.newest = root.at("newest").get<std::string>();
    table.is_yaml = root.value("yaml", false);
    table.known_by = root.at("known_by");
    table.sections = root.value("sections", Json::object());
    table.drops = texts_of(root.value("auto_is_default", Json::array()));
    table.script = texts_of(root.value("of_the_script", Json::array()));
    table.default_file = root.value("default_file", "");
    for (const auto& [name, entry] : root.at("keys").items()) table.keys.push_back(key_of(file, name, entry));
    for (ForeignKey& key : table.keys) {  // such objects take texts for truth values
      const auto is_below = [&](const std::string& object) { return key.name.starts_with(object + "."); };
      const bool is_flag = key.types == std::vector<std::string>{"boolean"};
      if (is_flag && std::any_of(table.drops.begin(), table.drops.end(), is_below)) key.takes_text = true;
    }
    for (const Json& product : root.value("products", Json::array()))
      table.products.push_back({product.at("all").get<std::string>(), product.at("each").get<std::string>(),
                                product.at("times").get<std::string>(), product.at("none").get<std::string>()});
    table.flags = root.value("flags", Json::object());
    table.words = root.value("words", Json::object());
    table.variables = root.value("variables", Json::object());
    table.lines = root.value("lines", Json::array());
    table.command = root.value("command", "");
    return table;
  } catch (const Json::exception& error) {
    table_is_ill_formed(file, "", reason_of(error));
  }
}

const ForeignTable* foreign_table(std::string_view format) {
  for (const ForeignTable& table : foreign_tables())
    if (table.format == format) return &table;
  return nullptr;
}

bool is_before(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  for (std::string x, y;;) {
    // A version that is less precise counts as its last: "0.18" as 0.18.999.
    const bool has_x = static_cast<bool>(std::getline(left, x, '.')),
               has_y = static_cast<bool>(std::getline(right, y, '.'));
    if (!has_y) return false;
    const long p = has_x ? std::strtol(x.c_str(), nullptr, 10) : 999'999, q = std::strtol(y.c_str(), nullptr, 10);
    if (p != q) return p < q;
  }
}

}  // namespace ddhost
