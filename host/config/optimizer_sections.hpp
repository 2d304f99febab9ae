// SPDX-License-Identifier: Apache-2.0
//
// config/optimizer_sections.hpp: the sections of the run's optimizers. The first is "optimizer". A further one is
// "optimizer_<name>", and exists if train.optimizers names it.
#pragma once

#include <string>
#include <vector>

#include "config/host_schema.hpp"
#include "config/user_config.hpp"

namespace ddhost {

// The names in train.optimizers, before the configuration is checked. Error: a name occurs twice or is illegal.
std::vector<std::string> optimizer_sections(const UserConfig& user);

// Further sections of schedules that train.phases names. Error: an illegal name.
std::vector<std::string> schedule_sections(const UserConfig& user);

// host_sections, and one for each further optimizer and schedule of the run.
std::vector<Section> run_sections(const UserConfig& user);

}  // namespace ddhost
