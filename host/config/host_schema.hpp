// SPDX-License-Identifier: Apache-2.0
//
// config/host_schema.hpp: the options of the sections that the host owns, and the default plugin of each kind.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/schema.hpp"
#include "engine/services/run_config.hpp"

namespace ddhost {

struct Section {
  std::string name;  // "train"
  Schema schema;
  std::string plugin = "";  // whose options it holds besides the host's: "strategy 'zero1'"
};

// All sections of a config, in the order in which they are printed, with the host's own options. The sections of plugins
// hold what chooses the plugin; add_plugin_options adds what the plugin takes.
std::vector<Section> host_sections();

// Puts a plugin's options into the section of its kind. `owner` names it in errors: "strategy 'zero1'". `prefix`: in front
// of the names of its options, where several plugins share the section: "csv.".
void add_plugin_options(std::vector<Section>& sections, const std::string& section, const char* schema_text,
                        const std::string& owner, const std::string& prefix = "");

// Is this a section whose further options come from a plugin?
bool is_plugin_section(std::string_view section);

}  // namespace ddhost
