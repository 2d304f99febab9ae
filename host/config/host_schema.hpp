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
  std::string plugin = "";  // the plugin whose options it has besides the host's: "strategy 'zero1'"
};

// The options of the transport that comm.host names. The section exists where such a transport is needed.
inline constexpr const char* kHostCommSection = "comm_host";
// The value of comm.plugin that stands for comm.inside and comm.between.
inline constexpr const char* kAutoComm = "auto";

// All sections of a config in printing order, with the host's own options. A plugin's section has the option that
// chooses the plugin; add_plugin_options adds the plugin's options.
std::vector<Section> host_sections();

// Puts a plugin's options into the section of its kind. `owner` names it in errors: "strategy 'zero1'". `prefix`:
// precedes the names of its options if several plugins share the section: "csv.". Returns the plugin's schema.
Schema add_plugin_options(std::vector<Section>& sections, const std::string& section, const char* schema_text,
                          const std::string& owner, const std::string& prefix = "");

// Whether a plugin adds options to this section.
bool is_plugin_section(std::string_view section);

}  // namespace ddhost
