// SPDX-License-Identifier: Apache-2.0
//
// config/compat.cpp: reading the tables of other programs' names.
#include "config/compat.hpp"

#include <algorithm>
#include <array>

#include "base/json.hpp"
#include "base/text.hpp"
#include "config/words.hpp"
#include "ddh/sdk/files/input_file.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

[[noreturn]] void ill_formed(const std::string& file, const std::string& name, const std::string& what) {
  ddh::fail(DDH_INVALID_ARGUMENT, "the table of names ", file, " is ill-formed: '", name, "' ", what,
            "; fix the table");
}

std::string type_of(const Json& value) {
  if (value.is_boolean()) return "boolean";
  return value.is_string() ? "string" : "integer";
}

// An entry for an option without effect, as a JSON schema.
Json as_schema(const CompatTable& table, const std::string& name, const Json& entry) {
  Json option = entry;
  for (const char* form : {"ignored", "only", "repeats", "sets", "because", "words", "factor"}) option.erase(form);
  if (entry.contains("ignored")) option["description"] = option["x-idle"] = entry["ignored"];
  if (entry.contains("because")) option["description"] = entry["because"];
  if (entry.contains("words")) option["x-spellings"] = entry["words"];
  if (entry.contains("sets")) {
    option["type"] = "string";
    option["x-sets"] = entry["sets"];
  }
  if (entry.contains("only")) {
    if (!entry.contains("because")) ill_formed(table.file, name, "has 'only' without 'because'");
    option["type"] = type_of(entry["only"]);
    option["default"] = entry["only"];
    option["enum"] = Json::array({entry["only"]});
  }
  return option;
}

// The option `name` of a table's entry, which the plugin does not declare.
void add_option(Schema& schema, const CompatTable& table, const std::string& name, const Json& entry) {
  const std::string repeats = entry.value("repeats", "");
  if (schema.find(name) != nullptr || schema.find_alias(name) != nullptr) return;
  if (!repeats.empty() && schema.find(repeats) == nullptr) return;
  const Json text = {{"properties", {{name, as_schema(table, name, entry)}}}};
  Option option = parse_schema(text.dump().c_str(), table.file).options.at(0);
  option.foreign = true;
  option.repeats = repeats;
  schema.options.push_back(std::move(option));
}

void add_words(Schema& schema, const std::string& name, const Json& words) {
  const auto option =
      std::find_if(schema.options.begin(), schema.options.end(), [&](const Option& o) { return o.name == name; });
  if (option == schema.options.end() || option->foreign) return;
  if (option->spellings.is_null()) option->spellings = Json::object();
  for (const auto& [word, value] : words.items())
    if (!option->spellings.contains(word)) option->spellings[word] = value;
}

void add_alias(Schema& schema, const CompatTable& table, const std::string& name, const Json& entry) {
  const std::string key = entry["is"].get<std::string>();
  const bool is_declared = schema.find(name) != nullptr || schema.find_alias(name) != nullptr;
  Json with = entry.value("with", Json());
  const auto has = [&](const auto& item) { return schema.find(item.key()) != nullptr; };
  const auto items = with.items();
  if (is_declared || schema.find(key) == nullptr || !std::all_of(items.begin(), items.end(), has)) return;
  for (auto& [option, value] : with.items())
    value = checked_value(*schema.find(option), value, option, "in the table of names " + table.file);
  schema.aliases.push_back({name, key, entry.value("factor", 1.0), with});
}

// The form of an entry, by its key.
enum class Form { kWords, kOption, kAlias };
Form form_of(const CompatTable& table, const std::string& name, const Json& entry) {
  constexpr std::array kOptionForms = {"ignored", "only", "repeats", "sets"};
  const auto forms = std::count_if(kOptionForms.begin(), kOptionForms.end(), [&](auto f) { return entry.contains(f); });
  if (forms + (entry.contains("is") ? 1 : 0) > 1) ill_formed(table.file, name, "has two forms");
  if (forms > 0) return Form::kOption;
  if (entry.contains("is")) return Form::kAlias;
  if (!entry.contains("words")) ill_formed(table.file, name, "has none of is, sets, words, ignored, only, repeats");
  return Form::kWords;
}

// The types of what an entry may have; `type` and the like are those of a schema.
void check_entry(const std::string& file, const std::string& name, const Json& entry) {
  if (!entry.is_object()) ill_formed(file, name, "is not an object");
  const auto require = [&](const char* key, bool (Json::*is_right)() const noexcept, const char* type) {
    if (entry.contains(key) && !(entry[key].*is_right)())
      ill_formed(file, name, ddh::str("has a '", key, "' that is no ", type));
  };
  for (const char* key : {"is", "repeats", "sets", "ignored", "because"}) require(key, &Json::is_string, "text");
  for (const char* key : {"words", "with"}) require(key, &Json::is_object, "object");
  require("factor", &Json::is_number, "number");
  if (entry.contains("factor") && !(entry["factor"].get<double>() > 0))
    ill_formed(file, name, "has a 'factor' that is not above 0");
}

}  // namespace

CompatTable read_compat_table(const std::string& file, const std::string& text) {
  CompatTable table{file, {}};
  try {
    table.groups = read_json(text);
  } catch (const JsonError& error) {
    ill_formed(file, "", error.what());
  }
  if (!table.groups.is_object()) ill_formed(file, "", "it is not an object");
  check_words(file, table.groups);
  for (const auto& [kind, groups] : table.groups.items()) {
    if (kind == "file" || kind == "words" || kind == "costs" || kind == kLauncherGroup || kind == kExportGroup ||
        kind == kConnectionGroup || kind == kBatchGroup)
      continue;
    if (!groups.is_array()) ill_formed(file, kind, "is not a list");
    for (const Json& group : groups) {
      const bool is_whole = group.is_object() && group.contains("for") && group["for"].is_array() &&
                            group.contains("names") && group["names"].is_object();
      if (!is_whole) ill_formed(file, kind, "has an entry without a list `for` or an object `names`");
      for (const auto& [name, entry] : group["names"].items()) check_entry(file, name, entry);
    }
  }
  return table;
}

std::vector<CompatTable> compat_tables_in(const std::vector<std::filesystem::path>& folders) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  for (const fs::path& folder : folders) {
    std::error_code ec;
    for (fs::directory_iterator at(folder, ec), end; !ec && at != end; at.increment(ec))
      if (at->path().extension() == ".json") files.push_back(at->path());
  }
  std::sort(files.begin(), files.end());
  std::vector<CompatTable> tables;
  for (const fs::path& file : files) {
    constexpr uint64_t kMostBytes = uint64_t{1} << 20;
    const ddh::InputFile in(file.string(), {"table of names", "repair it, or take it out of the folder"});
    tables.push_back(read_compat_table("'" + file.string() + "'", in.read(kMostBytes)));
  }
  return tables;
}

void add_foreign_names(std::vector<Section>& sections, const std::string& section, const std::string& kind,
                       const std::string& id, const std::vector<CompatTable>& tables) {
  const auto at = std::find_if(sections.begin(), sections.end(), [&](const Section& s) { return s.name == section; });
  if (at == sections.end()) ddh::fail(DDH_INTERNAL, "there is no section '", section, "' for the names of ", id);
  Schema& schema = at->schema;
  // Aliases come last, because they may refer to an option without effect.
  for (const Form turn : {Form::kWords, Form::kOption, Form::kAlias}) {
    for (const CompatTable& table : tables) {
      for (const Json& group : table.groups.value(kind, Json::array())) {
        const Json& ids = group.at("for");
        if (std::find(ids.begin(), ids.end(), Json(id)) == ids.end()) continue;
        for (const auto& [name, entry] : group.at("names").items()) {
          if (form_of(table, name, entry) != turn) continue;
          if (turn == Form::kWords) add_words(schema, name, entry["words"]);
          if (turn == Form::kOption) add_option(schema, table, name, entry);
          if (turn == Form::kAlias) add_alias(schema, table, name, entry);
        }
      }
    }
  }
}

}  // namespace ddhost
