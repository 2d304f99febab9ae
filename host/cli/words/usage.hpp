// SPDX-License-Identifier: Apache-2.0
//
// cli/words/usage.hpp: what a mistake on the command line may have meant, and help that fits into 80 columns.
#pragma once

#include <string>
#include <vector>

#include "cli/words/command_line.hpp"

namespace ddhost {

// The commands, below the help of each.
extern const char* const kFooter;

// Sentences. `value`: what follows the flag, or "".
std::string unknown_command(const std::string& word, const std::vector<std::string>& commands,
                            const KindOfPlugin& kind_of);
// The same of an action of a command: `ddhost runs lss`.
std::string unknown_action(const std::string& word, const CommandWords& command);
std::string no_action(const CommandWords& command);
// `action`: the second word of the line, which may be one.
std::string unknown_flag(const std::string& word, const std::string& value, const CommandWords& command,
                         const std::string& action);

// What is said of a mistake that the parser finds, with what to do. `kind`: the name of the parser's error; `text`: what it
// says; `command`: "runs diff".
std::string with_cure(const std::string& kind, const std::string& text, const std::string& command);

// The text of a help with its lines broken, those of a list below their second column.
std::string fitted_help(const std::string& help);

}  // namespace ddhost
