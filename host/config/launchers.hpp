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

// The entries "connection": what a program says that can't connect to a host, what that is and its cure.
struct ConnectionText {
  std::string says, is, cure;
};
std::vector<ConnectionText> connection_texts(const std::vector<std::filesystem::path>& folders);

// The entries "batch": batch systems, for each of which a command prints a script that starts a run.
struct BatchSystem {
  std::string name, help;  // of the command
  std::string run_dir;     // for a run without a folder of its own; the shell replaces its variables
  // Lines. {hosts}, {cores} (of each host), {name}, {folder} and {command} are replaced. A line with {directive} is repeated
  // for each further line that the user gives.
  std::vector<std::string> script;
};
std::vector<BatchSystem> batch_systems();

}  // namespace ddhost
