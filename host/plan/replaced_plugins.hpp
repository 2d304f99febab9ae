// SPDX-License-Identifier: Apache-2.0
//
// plan/replaced_plugins.hpp: the file's options for plugins that the command line replaces. An option of the same name may
// mean something else to another plugin (lr, weight_decay), so none of them counts.
#pragma once

#include <string>
#include <vector>

#include "config/host_schema.hpp"
#include "config/user_config.hpp"
#include "engine/calls/plugin.hpp"

namespace ddhost {

// A plugin of the run and the option that chooses it.
struct ChosenPlugin {
  const Plugin& plugin;
  std::string section, key;  // "schedule", "schedule.type"
};

// Marks the file's options for the plugin that it names with `chosen.key`, if the run has another one. `sections` have the
// host's options only. Returns a sentence with their names, or "".
std::string replace_options(UserConfig& user, const std::vector<Section>& sections, const ChosenPlugin& chosen);

// The same for the section comm_host, if `comm` replaces the file's transport and has none of host memory beside it.
std::string replace_host_comm_options(UserConfig& user, const std::vector<Section>& sections, const Plugin& comm);

// The same for the transports of a file with comm.plugin=auto, which is the default: which they are depends on the hosts and on
// the command line. `sections` also have the options of `comm`, and `has_inside` says whether another transport has the
// section comm_inside. Without comm.plugin in the file, its options of the section comm are those of `comm`.
std::string replace_other_transports(UserConfig& user, const std::vector<Section>& sections, const Plugin& comm,
                                     bool has_inside);

// The same for the monitors of the file that the run does not have.
std::string replace_monitor_options(UserConfig& user, const std::vector<Section>& sections,
                                    const std::vector<Plugin>& monitors);

}  // namespace ddhost
