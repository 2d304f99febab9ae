// SPDX-License-Identifier: Apache-2.0
//
// config/launchers.hpp: the programs that start the tasks of a run, from the tables of other programs' names.
#pragma once

#include <filesystem>
#include <vector>

#include "base/json.hpp"

namespace ddhost {

// The entries "launcher" of the tables in these folders, and then those of the program. Error: an entry is ill-formed.
std::vector<Json> launchers(const std::vector<std::filesystem::path>& folders);

}  // namespace ddhost
