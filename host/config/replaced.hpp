// SPDX-License-Identifier: Apache-2.0
//
// config/replaced.hpp: values of the file that count no more, because the command line gives something in their place: the
// length of the run, and the options of a plugin that the run does not have. They are marked in the user's configuration,
// and a sentence names them. What the command line itself gives is always checked.
#pragma once

#include <string>
#include <vector>

#include "config/host_schema.hpp"
#include "config/user_config.hpp"

namespace ddhost {

// Options that exclude each other, and the sections of optimizers and schedules that the run no longer has. Returns one
// sentence for each replacement.
std::vector<std::string> replace_excluded_options(UserConfig& user);

// The plugin that the file chooses by `key` ("schedule.type"), in the host's words; "" if it names none.
std::string choice_of_file(const UserConfig& user, const std::vector<Section>& sections, const std::string& key);

// Marks the file's options in a plugin's section, but for those of the host, which are all that `section` has, and those
// that begin with a word of `kept`: "csv." in the section of the monitors. Returns their keys.
std::vector<std::string> replace_plugin_options(UserConfig& user, const Section& section,
                                                const std::vector<std::string>& kept = {});

}  // namespace ddhost
