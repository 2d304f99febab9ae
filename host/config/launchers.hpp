// SPDX-License-Identifier: Apache-2.0
//
// config/launchers.hpp: the programs that start the tasks of a run, from the tables of other programs' names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.hpp"

namespace ddhost {

// The entries "launcher" of the tables in these folders, and then those of the program. Error: an entry is ill-formed.
std::vector<Json> launchers(const std::vector<std::filesystem::path>& folders);
// The entries "export": variables of the environment that other hosts of a run get.
std::vector<std::string> exported_variables(const std::vector<std::filesystem::path>& folders);

}  // namespace ddhost
