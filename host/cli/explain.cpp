// SPDX-License-Identifier: Apache-2.0
//
// cli/explain.cpp: `ddhost explain`.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <ostream>
#include <sstream>
#include <utility>

#include "base/json.hpp"
#include "base/terminal.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/words/known_options.hpp"
#include "config/compat.hpp"
#include "config/words.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr size_t kLabel = 15;
constexpr const char* kNoExample = "none";

// "  cost         ..."
std::string labelled(const std::string& name, const std::string& text, size_t columns) {
  return wrapped("  " + name + std::string(kLabel - 2 - std::min(name.size(), kLabel - 3), ' ') + plain_text(text),
                 columns, kLabel, LongWords::divide) +
         "\n";
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

// Whether "4 P/N" or the like has this letter.
bool has_symbol(const Cost& cost, char symbol) {
  const std::string text = " " + cost.bytes + " " + cost.time + " ";
  const auto is_mark = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; };
  for (size_t at = 1; at + 1 < text.size(); ++at)
    if (text[at] == symbol && is_mark(text[at - 1]) && is_mark(text[at + 1])) return true;
  return false;
}

// What is said about an option or a plugin: labels and texts.
struct Explanation {
  std::string name;
  std::vector<std::pair<std::string, std::string>> facts;

  void add(const std::string& label, const std::string& text) { facts.emplace_back(label, text); }
  void add_cost(const Cost& cost, const std::string& way) {
    if (cost.bytes.empty() && cost.time.empty())
      return add("cost", "depends on the sizes of the model; " + way + " computes the bytes");
    add("bytes", cost.bytes);
    add("time", cost.time);
    std::string symbols;
    if (has_symbol(cost, 'P')) symbols = "P: parameters of the model";
    if (has_symbol(cost, 'N')) symbols += symbols.empty() ? "N: ranks" : "; N: ranks";
    if (!symbols.empty()) add("where", symbols);
  }
  [[nodiscard]] std::string text(size_t columns) const {
    std::string out = wrapped(name, columns, 2, LongWords::divide) + '\n';
    for (const auto& [label, fact] : facts) out += labelled(label, fact, columns);
    return out;
  }
  [[nodiscard]] Json json() const {
    Json out = {{"name", name}};
    for (const auto& [label, fact] : facts) {
      std::string key = label;
      std::replace(key.begin(), key.end(), ' ', '_');
      out[key] = plain_text(fact);
    }
    return out;
  }
};

// Another number than the default, if the option takes one.
std::string other_number(const Option& option) {
  const double preset = option.preset.is_number() ? option.preset.get<double>() : 0;
  const bool is_whole = option.takes("integer");
  const auto is_legal = [&](double value) {
    return value >= option.minimum.value_or(value) && value <= option.maximum.value_or(value) &&
           (!option.above || value > *option.above);
  };
  constexpr double kPart = 0.1;
  for (const double value : {is_whole ? 2 * preset : preset / 2, preset + 1, is_whole ? std::floor(preset / 2) : kPart})
    if (value != preset && is_legal(value)) return number_text(value);
  return preset != 0 || option.preset.is_number() ? shown(option.preset) : number_text(option.minimum.value_or(1));
}

// A value that differs from the default, if it can be made from the option's type.
std::string example_value(const Option& option) {
  if (option.legal.is_array())
    for (const Json& value : option.legal)
      if (value != option.preset) return value.is_string() ? value.get<std::string>() : value.dump();
  if (option.takes("boolean")) return option.preset == Json(true) ? "false" : "true";
  if (option.is_path) return "PATH";
  if (option.takes("integer") || option.takes("number")) return other_number(option);
  if (option.takes("array")) return option.preset.is_array() ? option.preset.dump() : "[]";
  return option.preset.is_string() && option.preset != Json("") ? option.preset.get<std::string>() : "NAME";
}

std::string values_text(const Option& option) {
  std::string out = option.type_text();
  const std::string legal = option.legal_text();
  if (!legal.empty()) out += "; " + legal;
  if (!option.unit.empty()) out += (legal.empty() ? "; " : " ") + option.unit;
  const bool has_default = !option.preset.is_null() || option.takes("null");
  return out + (has_default ? "; default " + shown(option.preset) : "; must be given");
}

std::vector<std::string> other_names(const KnownOption& known) {
  std::vector<std::string> out;
  const std::string section = known.key.substr(0, known.key.size() - known.option.name.size());
  for (const Alias& alias : known.aliases)
    out.push_back(section + alias.name + (alias.scale == 1 ? "" : " (" + number_text(alias.scale) + " times this)"));
  for (std::string& word : words_of_option(known.key)) out.push_back(std::move(word));
  if (known.option.spellings.is_object())
    for (const auto& [word, value] : known.option.spellings.items())
      out.push_back(word + " for " + (value.is_string() ? value.get<std::string>() : shown(value)));
  return out;
}

// Whether a run without settings has the option.
bool is_of_default(const KnownOption& known) {
  const std::string section = known.key.substr(0, known.key.find('.'));
  const auto defaults = default_options().find(section);
  if (known.plugin.empty() || defaults == default_options().end()) return known.plugin.empty();
  const std::string id = defaults->value("plugin", defaults->value("type", ""));
  return known.plugin.ends_with(" '" + id + "'");
}

// A word of a shell.
std::string as_word(const std::string& text) {
  return text.find_first_of("\"[]{}()*? ") == std::string::npos ? text : "'" + text + "'";
}

struct PluginName {
  std::string kind, id;
};
PluginName parts_of(const std::string& plugin) {  // "strategy 'zero3'"
  const size_t end = plugin.find(" '");
  if (end == std::string::npos) return {};
  return {plugin.substr(0, end), plugin.substr(end + 2, plugin.size() - end - 3)};
}

// Words before those of an example, but for those that give `key` a value themselves. They end with a blank.
std::string words_before(const std::string& with, const std::string& key) {
  std::istringstream words(with);
  std::string out;
  for (std::string word; words >> word;)
    if (!word.starts_with(key + "=")) out += word + " ";
  return out;
}

// "ddhost --strategy zero3 strategy.prefetch_units=4"; "": there is no example.
std::string example_of(const KnownOption& known, const Cost& cost) {
  const bool has_one_value = known.option.legal.is_array() && known.option.legal.size() == 1;
  const PluginName plugin = parts_of(known.plugin);
  const Cost of_plugin = cost_of(plugin.kind, plugin.id);
  if (has_one_value || cost.example == kNoExample || of_plugin.example == kNoExample) return "";
  const std::string value = cost.example.empty() ? example_value(known.option) : cost.example;
  const std::string chosen = is_of_default(known) ? "" : "--" + plugin.kind + " " + plugin.id + " ";
  return "ddhost " + chosen + words_before(of_plugin.with, known.key) + words_before(cost.with, known.key) +
         as_word(known.key + "=" + value);
}

Explanation explained(const KnownOption& known) {
  Explanation out{known.key + (known.plugin.empty() ? "" : " of " + plain_text(known.plugin, kShownValue)), {}};
  const Cost cost = cost_of("option", known.key);
  out.add("meaning", known.option.description);
  out.add("values", values_text(known.option));
  out.add_cost(cost, "`ddhost plan " + known.key + "=...`");
  if (const std::vector<std::string> names = other_names(known); !names.empty()) out.add("other names", joined(names));
  if (const std::string example = example_of(known, cost); !example.empty()) out.add("example", example);
  return out;
}

// The key that chooses a plugin of the kind.
std::string key_of(const PluginFacts& plugin) {
  const std::string kind = kind_name(plugin.kind);
  if (plugin.kind == DDH_KIND_SCHEDULE) return kind + ".type";
  if (plugin.kind == DDH_KIND_FORMAT) return "run.format";
  return plugin.kind == DDH_KIND_MONITOR ? kind + ".plugins" : kind + ".plugin";
}

Explanation explained(const PluginFacts& plugin, const Registry& registry) {
  const std::string kind = kind_name(plugin.kind);
  Explanation out{kind + " '" + plugin.id + "'", {}};
  out.add("meaning", plugin.summary);
  const Cost cost = cost_of(kind, plugin.id);
  out.add_cost(cost, "`ddhost plan " + key_of(plugin) + "=" + plugin.id + "`");
  std::vector<std::string> words = words_of_value(key_of(plugin), plugin.id);
  // "gloo" stands for shm only where there is no plugin of that name.
  const std::vector<std::string> ids = registry.ids_of(plugin.kind);
  std::erase_if(words, [&](const std::string& word) { return std::find(ids.begin(), ids.end(), word) != ids.end(); });
  if (!words.empty()) out.add("other names", joined(words));
  std::vector<std::string> keys;
  for (const KnownOption& known : known_options({plugin}))
    if (!known.plugin.empty()) keys.push_back(known.key);
  out.add("options", keys.empty() ? "none" : joined(keys));
  if (cost.example == kNoExample) return out;
  const std::string with = cost.with.empty() ? "" : " " + cost.with;
  out.add("example", plugin.kind == DDH_KIND_FORMAT ? "ddhost eval run.format=" + plugin.id + " --weights FILE"
                                                    : "ddhost --" + kind + " " + plugin.id + with);
  return out;
}

bool is_named(const KnownOption& known, const std::string& word) {
  const std::string section = known.key.substr(0, known.key.size() - known.option.name.size());
  return known.key == word || std::any_of(known.aliases.begin(), known.aliases.end(),
                                          [&](const Alias& alias) { return section + alias.name == word; });
}

// Plugins of a kind often have an option of the same name, with their own default. One is shown.
Explanation explained(const std::vector<KnownOption>& all) {
  auto shown_one = std::find_if(all.begin(), all.end(), is_of_default);
  if (shown_one == all.end()) shown_one = all.begin();
  Explanation out = explained(*shown_one);
  std::vector<std::string> others;
  for (auto at = all.begin(); at != all.end(); ++at)
    if (at != shown_one && !at->plugin.empty()) others.push_back(at->plugin);
  if (!others.empty()) out.add("also of", joined(others) + "; `ddhost inspect NAME` shows theirs");
  return out;
}

// All that has this name among these plugins and options.
std::vector<Explanation> explained(const std::string& word, const std::vector<PluginFacts>& plugins,
                                   const Registry& registry) {
  std::vector<Explanation> out;
  for (const PluginFacts& plugin : plugins)
    if (plugin.id == word) out.push_back(explained(plugin, registry));
  std::vector<KnownOption> named;
  for (const KnownOption& known : known_options(plugins))
    if (is_named(known, word)) named.push_back(known);
  if (!named.empty()) out.push_back(explained(named));
  return out;
}

// The options of a section, "strategy": the host's, then those of each plugin.
std::optional<Explanation> section_explained(const std::string& section, const std::vector<KnownOption>& options) {
  Explanation out{"section '" + section + "'", {}};
  std::vector<std::string> keys;
  for (auto at = options.begin(); at != options.end(); ++at) {
    if (at->key.substr(0, at->key.find('.')) != section) continue;
    keys.push_back(at->key);
    const auto next = at + 1;
    if (next != options.end() && next->plugin == at->plugin && next->key.starts_with(section + ".")) continue;
    if (out.facts.empty()) out.add("example", "ddhost explain " + keys.front());
    out.add(at->plugin.empty() ? "options" : plain_text(at->plugin, kShownValue), joined(keys));
    keys.clear();
  }
  if (out.facts.empty()) return std::nullopt;
  std::rotate(out.facts.begin(), out.facts.begin() + 1, out.facts.end());  // the example is last
  return out;
}

void print(const std::vector<Explanation>& all, bool as_json, std::ostream& out) {
  if (as_json) {
    Json json = Json::array();
    for (const Explanation& one : all) json.push_back(one.json());
    out << json_document(json);
    return;
  }
  const size_t columns = terminal_columns(STDOUT_FILENO);
  for (size_t i = 0; i < all.size(); ++i) out << (i == 0 ? "" : "\n") << all[i].text(columns);
}

// Those that can have the name, as their notes say: loading all of them takes seconds.
std::vector<std::filesystem::path> files_for(const Registry& registry, const std::string& word) {
  const size_t dot = word.find('.');
  if (dot != std::string::npos) return registry.files_of(kind_named(word.substr(0, dot)));
  std::vector<std::filesystem::path> files;
  for (const char* kind :
       {"strategy", "model", "optimizer", "comm", "device", "schedule", "monitor", "format", "codec"})
    for (std::filesystem::path& file : registry.files_of(kind_named(kind), word)) files.push_back(std::move(file));
  return files;
}

[[noreturn]] void refuse(const std::string& word, const std::vector<PluginFacts>& plugins,
                         const std::vector<KnownOption>& options) {
  std::vector<std::string> names;
  for (const PluginFacts& plugin : plugins) names.push_back(plugin.id);
  std::string near;
  for (const KnownOption& one : options) {
    names.push_back(one.key);
    if (one.option.name == word && near.empty()) near = one.key;
  }
  std::string known = near.empty() ? hint_of_option(word, "") : "";
  for (const char* key : {"strategy.plugin", "optimizer.plugin", "model.plugin", "schedule.type", "comm.plugin",
                          "device.plugin", "monitor.plugins", "model.size"})
    if (known.empty() && near.empty())
      if (const std::string ours = our_value(key, word); !ours.empty()) known = "here it is " + ours;
  if (near.empty()) near = nearest(word, names);
  const std::string hint = !known.empty()  ? "; " + known
                           : !near.empty() ? "; did you mean '" + near + "'?"
                                           : "; `ddhost list` shows the plugins, `ddhost --dry-run` the options";
  ddh::fail(DDH_NOT_FOUND, "there is no option and no plugin '", plain_text(word, kShownValue), "'", hint);
}

}  // namespace

int explain(const Registry& registry, const std::string& word, bool as_json, std::ostream& out) {
  const std::vector<PluginFacts> some = known_plugins(registry, files_for(registry, word));
  if (const std::vector<Explanation> found = explained(word, some, registry); !found.empty()) {
    print(found, as_json, out);
    return 0;
  }
  const std::vector<PluginFacts> all = known_plugins(registry, registry.all_files());
  const std::vector<KnownOption> options = known_options(all);
  const std::optional<Explanation> section = section_explained(word, options);
  if (!section) refuse(word, all, options);
  print({*section}, as_json, out);
  return 0;
}

}  // namespace ddhost
