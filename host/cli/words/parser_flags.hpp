// SPDX-License-Identifier: Apache-2.0
//
// cli/words/parser_flags.hpp: the flags of all commands, as the parser has them, and rules that hold for each of them.
#pragma once

#include <string>
#include <vector>

#include "cli/words/command_line.hpp"

namespace CLI {
class App;
}

namespace ddhost {

// The parser takes any word as the value of a flag, also the next flag. A file of such a name can be given as ./--name.
void require_values(const CLI::App& app);

// Of two equal flags the last counts, where they are no list.
void let_last_flag_count(CLI::App& app);

// All commands with their actions and flags, and the flags of the actions.
std::vector<CommandWords> words_of(const CLI::App& app);

// The flags of all commands that have no value.
std::vector<std::string> switches_of(const CLI::App& app);

}  // namespace ddhost
