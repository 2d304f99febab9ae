// SPDX-License-Identifier: Apache-2.0
//
// cli/inspect.cpp: `ddhost inspect`.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iomanip>
#include <ostream>
#include <sstream>
#include <vector>

#include "base/json.hpp"
#include "base/terminal.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/words/known_options.hpp"
#include "config/schema.hpp"
#include "ddh/sdk/plugin.hpp"
#include "plugin/capabilities.hpp"
#include "plugin/elf_note.hpp"
#include "plugin/probe.hpp"

namespace ddhost {
namespace {

size_t output_columns() { return terminal_columns(STDOUT_FILENO, 100); }

std::ostream& label(std::ostream& out, const char* name) { return out << "  " << std::left << std::setw(13) << name; }

// With a text that may need several lines.
void print_labelled(std::ostream& out, const char* name, const std::string& text) {
  constexpr size_t kIndent = 15;
  std::ostringstream line;
  label(line, name) << text;
  out << wrapped(line.str(), output_columns(), kIndent, LongWords::divide) << '\n';
}

std::string with_mark(const std::string& interface_id) {
  return interface_id + (is_draft(interface_id) ? " (draft)" : "");
}

// Prints a list of interfaces; returns whether the host has them all.
bool print_interfaces(std::ostream& out, const char* name, const std::vector<std::string>& ids, InterfaceLookup lookup,
                      const char* absent) {
  bool all = true;
  std::string text;
  for (const std::string& id : ids) {
    const bool there = lookup != nullptr && lookup(id.c_str()) != nullptr;
    all = all && there;
    text += (text.empty() ? "" : ", ") + with_mark(id) + (there ? "" : absent);
  }
  print_labelled(out, name, text.empty() ? "none" : text);
  return all;
}

// "update programs, org.example.mesh/1"
std::string with_ids(std::string features, const std::vector<std::string>& ids) {
  if (features == "none" && !ids.empty()) features.clear();
  for (const std::string& id : ids) features += (features.empty() ? "" : ", ") + id;
  return features;
}

// A text below a row, in lines that fit.
void print_wrapped(std::ostream& out, const std::string& text) {
  constexpr size_t kIndent = 8;
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) line += (line.empty() ? "" : " ") + word;
  if (!line.empty())
    out << wrapped(std::string(kIndent, ' ') + line, output_columns(), kIndent, LongWords::divide) << '\n';
}

// The last column is a description. It is printed below the others, which share a line where all lines fit.
void print_table(std::ostream& out, const std::vector<std::array<std::string, 5>>& rows) {
  std::array<size_t, 5> width{};
  for (const auto& row : rows)
    for (size_t column = 0; column < row.size(); ++column) width[column] = std::max(width[column], row[column].size());
  const bool fits = 4 + width[0] + width[1] + width[2] + width[3] + 6 <= output_columns();
  for (const auto& row : rows) {
    std::string line = "    ";
    for (size_t column = 0; column + 1 < row.size(); ++column) {
      if (fits) line += row[column] + std::string(width[column] - row[column].size() + 2, ' ');
      if (!fits && !row[column].empty()) line += row[column] + "  ";
    }
    line = line.substr(0, line.find_last_not_of(' ') + 1);
    out << wrapped(line, output_columns(), 6, LongWords::divide) << '\n';
    print_wrapped(out, row.back());
  }
}

std::array<std::string, 5> alias_row(const std::string& kind, const Alias& alias, const Option& option) {
  const std::string name = plain_text(kind + "." + alias.name, kShownValue),
                    key = plain_text(kind + "." + alias.key, kShownValue);
  if (alias.scale == 1.0) return {name, option.type_text(), "", "", "another name of " + key};
  return {name, option.takes("null") ? "number or null" : "number", "", "",
          ddh::str("another name: ", key, " = ", number_text(alias.scale), " * this")};
}

// " Other words: FULL_SHARD for full_shard."
std::string words_text(const Option& option) {
  std::string words;
  if (option.spellings.is_object())
    for (const auto& [word, value] : option.spellings.items())
      words +=
          (words.empty() ? "" : ", ") + word + " for " + (value.is_string() ? value.get<std::string>() : shown(value));
  if (words.empty()) return "";
  return (option.description.ends_with('.') ? " Other words: " : ". Other words: ") + words + ".";
}

bool print_options(std::ostream& out, const PluginFacts& plugin) {
  const std::string section = section_of(plugin);
  try {
    const Schema schema = schema_with_names(plugin);
    label(out, "options") << (schema.options.empty() ? "none" : "") << '\n';
    if (schema.options.empty()) return true;
    std::vector<std::array<std::string, 5>> rows = {{"key", "type", "default", "range", ""}};
    for (const Option& option : schema.options) {
      if (option.foreign) continue;
      std::string range = plain_text(option.legal_text(), kShownValue);
      if (!option.unit.empty()) range += (range.empty() ? "" : " ") + plain_text(option.unit, kShownValue);
      const bool has_default = !option.preset.is_null() || option.takes("null");
      rows.push_back({plain_text(section + "." + option.name, kShownValue), option.type_text(),
                      has_default ? shown(option.preset) : "(must be given)", range,
                      plain_text(option.description + words_text(option))});
    }
    for (const Alias& alias : schema.aliases)
      if (const Option& option = *schema.find(alias.key); !option.foreign)  // else the plugin has nothing of the kind
        rows.push_back(alias_row(section, alias, option));
    print_table(out, rows);
    return true;
  } catch (const ddh::Error& error) {
    label(out, "options") << plain_text(error.what()) << '\n';
    return false;
  }
}

void print_libraries(std::ostream& out, const std::vector<ForeignLibrary>& libraries) {
  std::string text;
  for (const ForeignLibrary& library : libraries)
    text += (text.empty() ? "" : ", ") + plain_text(library.text(), kShownValue);
  print_labelled(out, "built with", text.empty() ? "no library of another maker" : text);
}

void print_abi(std::ostream& out, int major, uint32_t min_minor, uint32_t minor) {
  print_labelled(out, "ABI",
                 ddh::str("built with ", major, '.', minor, ", needs a host of ", major, '.', min_minor,
                          " or newer; this host has ", DDH_ABI_MAJOR, '.', DDH_ABI_MINOR));
}

bool print_plugin(std::ostream& out, const PluginFacts& plugin, InterfaceLookup lookup) {
  const std::string title =
      ddh::str(kind_name(plugin.kind), " '", plugin.id, "' ", plugin.version, ": ", plugin.summary);
  const size_t columns = terminal_columns(STDOUT_FILENO, SIZE_MAX);
  out << (columns == SIZE_MAX ? title : wrapped(title, columns, 2, LongWords::divide)) << '\n';
  label(out, "offers") << with_mark(interface_of(plugin.kind)) << '\n';
  const bool served = print_interfaces(out, "needs", plugin.needs, lookup, " (NOT OFFERED by this host)");
  print_interfaces(out, "wants", plugin.wants, lookup, " (not offered by this host)");
  print_labelled(out, "caps", caps_text(plugin.kind, plugin.caps));
  print_labelled(out, "uses", with_ids(features_text(plugin.uses), plugin.uses_ids));
  print_labelled(out, "understands", with_ids(features_text(plugin.understands), plugin.understands_ids));
  for (const auto& [name, text] :
       {std::pair("vendor", plugin.vendor), std::pair("url", plugin.url), std::pair("license", plugin.license)})
    if (!text.empty()) print_labelled(out, name, text);
  const bool readable = print_options(out, plugin);
  if (!served) out << "  this host can't run it: update ddhost\n";
  return served && readable;
}

void print_note(std::ostream& out, const ElfFacts& facts) {
  if (!facts.note) {
    if (facts.problem.empty()) out << "it has no ddhost note, so nothing more is known\n";
    return;
  }
  out << "what its note says:\n";
  for (const NotePlugin& plugin : facts.note->plugins)
    label(out, plain_text(plugin.kind, kShownValue).c_str()) << plain_text(plugin.id, kShownValue) << '\n';
  print_abi(out, facts.note->abi_major, facts.note->min_host_minor, static_cast<uint32_t>(facts.note->abi_minor));
  print_libraries(out, facts.note->libraries);
}

void print_needed(std::ostream& out, const ElfFacts& facts) {
  std::string text;
  for (const std::string& name : facts.needed) text += (text.empty() ? "" : ", ") + plain_text(name, kShownValue);
  print_labelled(out, "links", text.empty() ? "nothing" : text);
}

Json json_of(const PluginFacts& plugin, InterfaceLookup lookup) {
  Json out = {{"kind", kind_name(plugin.kind)}, {"id", plugin.id},         {"version", plugin.version},
              {"summary", plugin.summary},      {"needs", plugin.needs},   {"wants", plugin.wants},
              {"vendor", plugin.vendor},        {"url", plugin.url},       {"license", plugin.license},
              {"missing", Json::array()},       {"options", Json::array()}};
  out["caps"] = caps_text(plugin.kind, plugin.caps);
  out["uses"] = with_ids(features_text(plugin.uses), plugin.uses_ids);
  out["understands"] = with_ids(features_text(plugin.understands), plugin.understands_ids);
  for (const std::string& id : plugin.needs)
    if (lookup == nullptr || lookup(id.c_str()) == nullptr) out["missing"].push_back(id);
  try {
    for (const Option& option : schema_with_names(plugin).options) {
      if (option.foreign) continue;
      out["options"].push_back({{"key", section_of(plugin) + "." + option.name},
                                {"type", option.type_text()},
                                {"default", option.preset},
                                {"range", option.legal_text()},
                                {"unit", option.unit},
                                {"description", option.description}});
    }
  } catch (const ddh::Error& error) {
    out["problem"] = plain_text(error.what());
  }
  return out;
}

// The same facts for programs.
int print_json(const Registry& registry, const std::filesystem::path& file, const ElfFacts& facts, std::ostream& out) {
  Json json = {
      {"file", file.string()}, {"links", facts.needed}, {"libraries", Json::array()}, {"plugins", Json::array()}};
  bool usable = true;
  try {
    const LibraryFacts library = probe(file, registry.lookup(), MissingInterfaces::kPretend);
    json["abi"] = {
        {"major", library.abi_major}, {"minor", library.abi_minor}, {"min_host_minor", library.min_host_minor}};
    json["warnings"] = library.warnings;
    for (const ForeignLibrary& one : library.libraries) json["libraries"].push_back(one.text());
    for (const PluginFacts& plugin : library.plugins) {
      json["plugins"].push_back(json_of(plugin, registry.lookup()));
      usable = usable && json["plugins"].back()["missing"].empty() && !json["plugins"].back().contains("problem");
    }
  } catch (const ddh::Error& error) {
    json["problem"] = plain_text(error.what());
    usable = false;
  }
  json["usable"] = usable;
  out << json_document(json);
  return usable ? 0 : 1;
}

}  // namespace

std::filesystem::path inspected_file(const Registry& registry, const std::string& text) {
  const Choice choice = parse_choice(text);
  if (choice.is_path) return registry.locate(choice.file, std::filesystem::current_path());
  for (const std::filesystem::path& folder : registry.folders())
    if (std::filesystem::exists(folder / (choice.file + ".so"))) return folder / (choice.file + ".so");
  return registry.locate(choice.file, std::filesystem::current_path());
}

int inspect_plugin(const Registry& registry, const std::string& choice, std::ostream& out, bool as_json) {
  const std::filesystem::path file = inspected_file(registry, choice);
  const ElfFacts facts = read_elf(file);
  if (as_json) return print_json(registry, file, facts, out);
  out << shown_text(file.string()) << '\n';
  try {
    const LibraryFacts library = probe(file, registry.lookup(), MissingInterfaces::kPretend);
    print_abi(out, library.abi_major, library.min_host_minor, library.abi_minor);
    print_libraries(out, library.libraries);
    print_needed(out, facts);
    bool usable = true;
    for (const PluginFacts& plugin : library.plugins) usable = print_plugin(out, plugin, registry.lookup()) && usable;
    for (const std::string& warning : library.warnings) out << "warning: " << plain_text(warning) << '\n';
    return usable ? 0 : 1;
  } catch (const ddh::Error& error) {
    out << "can't be used: " << plain_text(error.what()) << '\n';
    print_note(out, facts);
    if (facts.problem.empty()) print_needed(out, facts);
    return 1;
  }
}

}  // namespace ddhost
