// SPDX-License-Identifier: Apache-2.0
//
// config/compat.hpp: other programs' names for options, and their configuration files. The build puts the tables of
// plugins/names into the program; further ones are found beside plugins, in folders `names`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/host_schema.hpp"

namespace ddhost {

struct CompatTable {
  std::string file;  // "deepspeed.json"
  Json groups;       // by kind of plugin
};
// Error: the text is ill-formed.
CompatTable read_compat_table(const std::string& file, const std::string& text);
const std::vector<CompatTable>& compat_tables();
// The tables in these folders, *.json. Error: one is ill-formed.
std::vector<CompatTable> compat_tables_in(const std::vector<std::filesystem::path>& folders);

// The groups of a table that config/launchers.hpp reads.
constexpr const char* kLauncherGroup = "launcher";
constexpr const char* kExportGroup = "export";
constexpr const char* kConnectionGroup = "connection";
constexpr const char* kBatchGroup = "batch";

// configs/defaults.json: default values of the host's options, by section.
const Json& default_options();

// Adds the names in `tables` for the options of plugin `id` to its section ("strategy"), which is of kind "strategy".
// The plugin's own declarations win over a table. Error: a table is ill-formed.
void add_foreign_names(std::vector<Section>& sections, const std::string& section, const std::string& kind,
                       const std::string& id, const std::vector<CompatTable>& tables = compat_tables());

}  // namespace ddhost
