// SPDX-License-Identifier: Apache-2.0
//
// config/compat.hpp: other programs' names for options of ddhost's plugins. The build compiles the tables of names,
// config/compat/*.json, into the program.
#pragma once

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

// Adds the names in `tables` for the options of plugin `id` to its section ("strategy"), which is of kind "strategy".
// The plugin's own declarations win over a table. Error: a table is ill-formed.
void add_foreign_names(std::vector<Section>& sections, const std::string& section, const std::string& kind,
                       const std::string& id, const std::vector<CompatTable>& tables = compat_tables());

}  // namespace ddhost
