// SPDX-License-Identifier: Apache-2.0
//
// cli/words/known_options.hpp: all plugins that are found, and all options, with what other programs call them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "config/schema.hpp"
#include "plugin/probe.hpp"
#include "plugin/registry.hpp"

namespace ddhost {

// An option as a user writes it.
struct KnownOption {
  std::string key;     // "strategy.nvme_path"
  std::string plugin;  // whose it is: "strategy 'zero1'"; "": the host's
  Option option;
  std::vector<Alias> aliases;  // other names of it, also of other programs
};

// The kind of that name, "strategy"; 0: there is none.
int32_t kind_named(const std::string& name);
// "model" for "gpt": the kind of the plugin of that name, as the notes of libraries say; "": there is none.
std::string kind_of_plugin(const Registry& registry, const std::string& name);
// The plugins of these files and the linked ones, in the order of `ddhost list`, each name once. Files that can't be used
// are left out.
std::vector<PluginFacts> known_plugins(const Registry& registry, const std::vector<std::filesystem::path>& files);
// The schema of a plugin with the names that other programs have for its options. Error: it is ill-formed.
Schema schema_with_names(const PluginFacts& plugin);
// The section of a plugin's options: "strategy", "monitor.csv", "follower.ema".
std::string section_of(const PluginFacts& plugin);
// The host's options, then those of these plugins. Options of other programs without effect are left out.
std::vector<KnownOption> known_options(const std::vector<PluginFacts>& plugins);

}  // namespace ddhost
