// SPDX-License-Identifier: Apache-2.0
//
// cli/options_page.cpp: `ddhost inspect --markdown`: the options of the host and of plugins as a page, such as docs/options.md.
#include <algorithm>
#include <cctype>
#include <ostream>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/words/known_options.hpp"
#include "config/host_schema.hpp"
#include "ddh/sdk/plugin.hpp"
#include "plugin/capabilities.hpp"
#include "plugin/probe.hpp"

namespace ddhost {
namespace {

constexpr const char* kAboutAll =
    "`ddhost inspect --markdown > docs/options.md` writes this page from the schemas of the host's sections "
    "(`host/config/host_schema.cpp`) and of the plugins. Change a schema, not this page; the test `docs_options` "
    "compares "
    "them. The page is that of a build with all plugins. Where a library is missing, a build lacks the plugins that "
    "need "
    "it, and the test then leaves their sections out.";
constexpr const char* kAboutOptions =
    "The parentheses after a key hold the type, the legal values and the default. [Configuration](configuration.md) "
    "says "
    "how a value is given, and how options work together.";

// A text without marks of Markdown, on one line.
std::string escaped(const std::string& text) {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool inside_word = i > 0 && i + 1 < text.size() && is_word(text[i - 1]) && is_word(text[i + 1]);
    if (std::string_view("\\`*<[]&").find(c) != std::string_view::npos || (c == '_' && !inside_word)) out += '\\';
    out += c == '\n' || c == '\t' ? ' ' : c;
  }
  return out;
}

std::string code(const std::string& text) {
  const std::string plain = plain_text(text, kShownValue);
  return plain.empty() || plain.find_first_of("`\n") != std::string::npos ? escaped(plain) : "`" + plain + "`";
}

// A word that begins a line: it must not begin a list, a heading or a quotation there.
std::string at_line_start(const std::string& word) {
  if (word.find_first_not_of("-+=") == std::string::npos || word[0] == '#' || word[0] == '>') return "\\" + word;
  const size_t digits = word.find_first_not_of("0123456789");
  if (digits == 0 || digits + 1 != word.size() || (word.back() != '.' && word.back() != ')')) return word;
  return word.substr(0, digits) + "\\" + word.back();
}

// Wraps a paragraph to lines of at most 100 columns; those after the first begin with `indent`.
void print_paragraph(std::ostream& out, const std::string& first, const std::string& indent, const std::string& text) {
  constexpr size_t kWidth = 100;
  std::istringstream words(text);
  std::string line = first;
  bool is_begun = false;
  for (std::string word; words >> word; is_begun = true) {
    if (is_begun && line.size() + 1 + word.size() > kWidth) {
      out << line << '\n';
      line = indent + at_line_start(word);
    } else {
      line += (is_begun ? " " : "") + word;
    }
  }
  out << line << '\n';
}

std::string sentence(const std::string& text) { return text.empty() || text.back() == '.' ? text : text + "."; }

// "(integer; at least 0 bytes; default `0`)"
std::string facts_text(const Option& option) {
  std::string text = option.type_text();
  const std::string legal = escaped(plain_text(option.legal_text())),
                    unit = escaped(plain_text(option.unit, kShownValue));
  if (!legal.empty() || !unit.empty()) text += "; " + legal + (legal.empty() || unit.empty() ? "" : " ") + unit;
  if (!option.sets.empty()) return "(" + text + "; sets " + code(option.sets) + ")";
  const bool has_default = !option.preset.is_null() || option.takes("null");
  return "(" + text + (has_default ? "; default " + code(shown(option.preset)) : "; must be given") + ")";
}

void print_option(std::ostream& out, const std::string& section, const Option& option) {
  std::string text = code(section + "." + option.name) + " " + facts_text(option) + ": " +
                     sentence(escaped(plain_text(option.description)));
  if (!option.idle.empty()) text += " It has no effect: " + sentence(escaped(plain_text(option.idle)));
  std::string words;
  if (option.spellings.is_object())
    for (const auto& [word, meaning] : option.spellings.items())
      words += (words.empty() ? " Other spellings: " : ", ") + code(word) + " for " +
               code(meaning.is_string() ? meaning.get<std::string>() : shown(meaning));
  print_paragraph(out, "- ", "  ", text + sentence(words));
}

void print_alias(std::ostream& out, const std::string& section, const Alias& alias) {
  const std::string key = code(section + "." + alias.key);
  print_paragraph(out, "- ", "  ",
                  code(section + "." + alias.name) + ": another name of " + key +
                      (alias.scale == 1.0 ? "." : ddh::str(", which is ", number_text(alias.scale), " times this.")));
}

void print_options(std::ostream& out, const std::string& section, const Schema& schema) {
  for (const Option& option : schema.options)
    if (!option.foreign) print_option(out, section, option);
  for (const Alias& alias : schema.aliases) print_alias(out, section, alias);
  if (schema.options.empty()) out << "It has no options.\n";
}

void print_plugin(std::ostream& out, const PluginFacts& plugin) {
  const std::string kind = kind_name(plugin.kind);
  const Schema schema =
      parse_schema(plugin.config_schema ? plugin.config_schema->c_str() : nullptr, kind + " '" + plugin.id + "'");
  out << "\n## Section " << code(kind) << ", plugin " << code(plugin.id) << '\n';
  print_paragraph(out, "", "", sentence(escaped(plain_text(plugin.summary))));
  out << '\n';
  print_options(out, section_of(plugin), schema);
}

void print_sections(std::ostream& out) {
  for (const Section& section : host_sections()) {
    if (section.schema.options.empty()) continue;  // of plugins alone
    out << "\n## Section " << code(section.name) << '\n';
    print_options(out, section.name, section.schema);
  }
}

// In the order of `ddhost list`. A name counts once: the first file that has it.
void print_plugins(std::ostream& out, std::vector<PluginFacts> plugins) {
  const auto key = [](const PluginFacts& plugin) { return std::pair(plugin.kind, plugin.id); };
  std::stable_sort(plugins.begin(), plugins.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  const auto end =
      std::unique(plugins.begin(), plugins.end(), [&](const auto& a, const auto& b) { return key(a) == key(b); });
  std::for_each(plugins.begin(), end, [&](const PluginFacts& plugin) { print_plugin(out, plugin); });
}

}  // namespace

int print_options_page(const Registry& registry, const std::vector<std::string>& choices, std::ostream& out) {
  std::vector<PluginFacts> plugins;
  std::vector<std::filesystem::path> files;
  for (const std::string& choice : choices) files.push_back(inspected_file(registry, choice));
  if (choices.empty()) {
    files = registry.all_files();
    for (const Plugin& plugin : registry.built_in()) plugins.push_back(facts_of(*plugin.desc));
  }
  for (const Probed& one : probe_all(files, registry.lookup(), MissingInterfaces::kPretend))
    for (const PluginFacts& plugin : one.get().plugins) plugins.push_back(plugin);
  std::ostringstream page;  // printed whole or not at all
  page << "# Options\n";
  if (choices.empty()) print_paragraph(page, "", "", kAboutAll);
  if (choices.empty()) page << '\n';
  print_paragraph(page, "", "", kAboutOptions);
  print_sections(page);
  print_plugins(page, std::move(plugins));
  out << page.str();
  return 0;
}

}  // namespace ddhost
