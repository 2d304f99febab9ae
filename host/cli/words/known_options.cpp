// SPDX-License-Identifier: Apache-2.0
#include "cli/words/known_options.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "config/compat.hpp"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr std::array<int32_t, 9> kKinds = {DDH_KIND_STRATEGY, DDH_KIND_MODEL,  DDH_KIND_OPTIMIZER,
                                           DDH_KIND_COMM,     DDH_KIND_DEVICE, DDH_KIND_SCHEDULE,
                                           DDH_KIND_MONITOR,  DDH_KIND_FORMAT, DDH_KIND_CODEC};

void add_all(std::vector<KnownOption>& to, const std::string& section, const std::string& plugin,
             const Schema& schema) {
  for (const Option& option : schema.options) {
    if (option.foreign) continue;
    KnownOption& known = to.emplace_back(KnownOption{section + "." + option.name, plugin, option, {}});
    std::copy_if(schema.aliases.begin(), schema.aliases.end(), std::back_inserter(known.aliases),
                 [&](const Alias& alias) { return alias.key == option.name; });
  }
}

}  // namespace

int32_t kind_named(const std::string& name) {
  for (const int32_t kind : kKinds)
    if (kind_name(kind) == name) return kind;
  return 0;
}

std::string kind_of_plugin(const Registry& registry, const std::string& name) {
  for (const int32_t kind : kKinds)
    if (registry.knows(kind, name)) return kind_name(kind);
  return "";
}

std::vector<PluginFacts> known_plugins(const Registry& registry, const std::vector<std::filesystem::path>& files) {
  std::vector<PluginFacts> plugins;
  for (const Plugin& plugin : registry.built_in()) plugins.push_back(facts_of(*plugin.desc));
  for (const Probed& one : probe_all(files, registry.lookup(), MissingInterfaces::kPretend))
    if (one.facts)  // else `ddhost list` gives the reason
      plugins.insert(plugins.end(), one.facts->plugins.begin(), one.facts->plugins.end());
  const auto key = [](const PluginFacts& plugin) { return std::pair(plugin.kind, plugin.id); };
  std::stable_sort(plugins.begin(), plugins.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  plugins.erase(
      std::unique(plugins.begin(), plugins.end(), [&](const auto& a, const auto& b) { return key(a) == key(b); }),
      plugins.end());
  return plugins;
}

std::string section_of(const PluginFacts& plugin) {
  if (plugin.kind == DDH_KIND_OPTIMIZER && (plugin.caps & DDH_CAP_FOLLOWS) != 0)
    return std::string(kFollower) + plugin.id;
  return plugin.kind == DDH_KIND_MONITOR ? kind_name(plugin.kind) + ("." + plugin.id) : kind_name(plugin.kind);
}

Schema schema_with_names(const PluginFacts& plugin) {
  const std::string kind = kind_name(plugin.kind), section = section_of(plugin);
  std::vector<Section> sections = {
      {section,
       parse_schema(plugin.config_schema ? plugin.config_schema->c_str() : nullptr, kind + " '" + plugin.id + "'"),
       ""}};
  add_foreign_names(sections, section, kind, plugin.id);
  return std::move(sections.front().schema);
}

std::vector<KnownOption> known_options(const std::vector<PluginFacts>& plugins) {
  std::vector<KnownOption> out;
  for (const Section& section : host_sections()) add_all(out, section.name, "", section.schema);
  for (const PluginFacts& plugin : plugins) {
    try {
      add_all(out, section_of(plugin), std::string(kind_name(plugin.kind)) + " '" + plugin.id + "'",
              schema_with_names(plugin));
    } catch (const ddh::Error&) {  // `ddhost inspect` gives the reason
    }
  }
  return out;
}

}  // namespace ddhost
