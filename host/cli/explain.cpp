// SPDX-License-Identifier: Apache-2.0
//
// cli/explain.cpp: `ddhost explain`.
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <ostream>
#include <utility>

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

// "  cost         ..."
std::string labelled(const std::string& name, const std::string& text, size_t columns) {
  return wrapped("  " + name + std::string(kLabel - 2 - std::min(name.size(), kLabel - 3), ' ') + plain_text(text),
                 columns, kLabel) +
         "\n";
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

std::string cost_text(const Cost& cost, const std::string& way, size_t columns) {
  if (cost.bytes.empty() && cost.time.empty())
    return labelled("cost", "nothing is recorded; " + way + " computes the bytes of a model", columns);
  return labelled("bytes", cost.bytes, columns) + labelled("time", cost.time, columns);
}

// A value that differs from the default.
std::string example_value(const Option& option) {
  if (option.legal.is_array())
    for (const Json& value : option.legal)
      if (value != option.preset) return value.is_string() ? value.get<std::string>() : value.dump();
  if (option.takes("boolean")) return option.preset == Json(true) ? "false" : "true";
  if (option.is_path) return "PATH";
  if (option.takes("integer") || option.takes("number")) {
    if (option.preset.is_number() && option.preset != Json(0)) return shown(option.preset);
    return option.minimum.value_or(0) > 1 ? number_text(*option.minimum) : "1";
  }
  if (option.takes("array")) return "[]";
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

void print_option(std::ostream& out, const KnownOption& known, size_t columns) {
  out << known.key << (known.plugin.empty() ? "" : " of " + plain_text(known.plugin, kShownValue)) << '\n'
      << labelled("meaning", known.option.description, columns)
      << labelled("values", values_text(known.option), columns)
      << cost_text(cost_of("option", known.key), "`ddhost plan " + known.key + "=...`", columns);
  const std::vector<std::string> names = other_names(known);
  if (!names.empty()) out << labelled("other names", joined(names), columns);
  out << labelled("example", "ddhost " + known.key + "=" + example_value(known.option), columns);
}

// The key that chooses a plugin of the kind.
std::string key_of(const PluginFacts& plugin) {
  const std::string kind = kind_name(plugin.kind);
  if (plugin.kind == DDH_KIND_SCHEDULE) return kind + ".type";
  return plugin.kind == DDH_KIND_MONITOR ? kind + ".plugins" : kind + ".plugin";
}

void print_plugin(std::ostream& out, const PluginFacts& plugin, size_t columns) {
  const std::string kind = kind_name(plugin.kind);
  out << kind << " '" << plugin.id << "'\n" << labelled("meaning", plugin.summary, columns);
  out << cost_text(cost_of(kind, plugin.id), "`ddhost plan --" + kind + " " + plugin.id + "`", columns);
  const std::vector<std::string> words = words_of_value(key_of(plugin), plugin.id);
  if (!words.empty()) out << labelled("other names", joined(words), columns);
  std::vector<std::string> keys;
  for (const KnownOption& known : known_options({plugin}))
    if (!known.plugin.empty()) keys.push_back(known.key);
  out << labelled("options", keys.empty() ? "none" : joined(keys), columns);
  out << labelled("example",
                  plugin.kind == DDH_KIND_FORMAT ? "ddhost run.format=" + plugin.id + " --weights FILE eval"
                                                 : "ddhost --" + kind + " " + plugin.id,
                  columns);
}

bool is_named(const KnownOption& known, const std::string& word) {
  const std::string section = known.key.substr(0, known.key.size() - known.option.name.size());
  return known.key == word || std::any_of(known.aliases.begin(), known.aliases.end(),
                                          [&](const Alias& alias) { return section + alias.name == word; });
}

// Whether a run without settings has the option.
bool is_of_default(const KnownOption& known) {
  const std::string section = known.key.substr(0, known.key.find('.'));
  const auto defaults = default_options().find(section);
  if (known.plugin.empty() || defaults == default_options().end()) return known.plugin.empty();
  const std::string id = defaults->value("plugin", defaults->value("type", ""));
  return known.plugin.ends_with(" '" + id + "'");
}

// Plugins of a kind often have an option of the same name, with their own default. One is shown.
void print_option_of_all(std::ostream& out, const std::vector<KnownOption>& all, size_t columns) {
  auto shown_one = std::find_if(all.begin(), all.end(), is_of_default);
  if (shown_one == all.end()) shown_one = all.begin();
  print_option(out, *shown_one, columns);
  std::vector<std::string> others;
  for (auto at = all.begin(); at != all.end(); ++at)
    if (at != shown_one && !at->plugin.empty()) others.push_back(at->plugin);
  if (!others.empty()) out << labelled("also of", joined(others) + "; `ddhost inspect NAME` shows theirs", columns);
}

// Prints all that has this name among these plugins and options; returns whether there is any.
bool print_named(std::ostream& out, const std::string& word, const std::vector<PluginFacts>& plugins,
                 const std::vector<KnownOption>& options) {
  const size_t columns = terminal_columns(STDOUT_FILENO);
  bool is_found = false;
  const auto separate = [&] {
    if (std::exchange(is_found, true)) out << '\n';
  };
  for (const PluginFacts& plugin : plugins) {
    if (plugin.id != word) continue;
    separate();
    print_plugin(out, plugin, columns);
  }
  std::vector<KnownOption> named;
  std::copy_if(options.begin(), options.end(), std::back_inserter(named),
               [&](const KnownOption& known) { return is_named(known, word); });
  if (named.empty()) return is_found;
  separate();
  print_option_of_all(out, named, columns);
  return true;
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
  for (const KnownOption& known : options) {
    names.push_back(known.key);
    if (known.option.name == word && near.empty()) near = known.key;
  }
  std::string ours = near.empty() ? our_option(word, "") : "";
  for (const char* key : {"strategy.plugin", "optimizer.plugin", "model.plugin", "schedule.type"})
    if (ours.empty() && near.empty()) ours = our_value(key, word);
  if (near.empty()) near = nearest(word, names);
  const std::string hint = !ours.empty()   ? "; here it is " + ours
                           : !near.empty() ? "; did you mean '" + near + "'?"
                                           : "; `ddhost list` shows the plugins, `ddhost --dry-run` the options";
  ddh::fail(DDH_NOT_FOUND, "there is no option and no plugin '", plain_text(word, kShownValue), "'", hint);
}

}  // namespace

int explain(const Registry& registry, const std::string& word, std::ostream& out) {
  const std::vector<PluginFacts> some = known_plugins(registry, files_for(registry, word));
  if (print_named(out, word, some, known_options(some))) return 0;
  const std::vector<PluginFacts> all = known_plugins(registry, registry.all_files());
  refuse(word, all, known_options(all));
}

}  // namespace ddhost
