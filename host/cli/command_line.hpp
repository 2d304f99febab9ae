// SPDX-License-Identifier: Apache-2.0
//
// cli/command_line.hpp: what the user typed.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "config/user_config.hpp"

namespace ddhost {

enum class Command { kTrain, kEval, kGenerate, kList, kInspect };

struct CommandLine {
  Command command = Command::kTrain;
  std::filesystem::path config_file;  // "" = none
  std::vector<Override> overrides;    // flags and key=value, in the order of their weight
  std::string inspect_file;
  bool dry_run = false;
};

// The command line ends the program here: --help and --version with 0, a mistake with 2. The text is already printed.
struct CommandLineExit {
  int code;
};

// Throws CommandLineExit.
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace ddhost
