// SPDX-License-Identifier: Apache-2.0
//
// config/run_length.hpp: the sections of a run with several optimizers or schedules; and how long a run is, and how often it
// evaluates: in steps or in epochs.
#pragma once

#include <string>
#include <vector>

#include "config/config.hpp"
#include "config/host_schema.hpp"
#include "config/user_config.hpp"

namespace ddhost {

// The names in train.optimizers, before the configuration is checked. Error: a name occurs twice or is illegal.
std::vector<std::string> optimizer_sections(const UserConfig& user);

// Further sections of schedules that train.phases names. Error: an illegal name.
std::vector<std::string> schedule_sections(const UserConfig& user);

// host_sections, and one for each further optimizer and schedule of the run.
std::vector<Section> run_sections(const UserConfig& user);

// Where epochs are given, train.steps is null, so that what a dry run prints is a config file. Error: steps and epochs are
// both given. `trains`: false for `eval` and `generate`, where train.programs takes the place of train.phases, and no option
// says when to evaluate.
void settle_run_length(Config& config, bool trains);

}  // namespace ddhost
