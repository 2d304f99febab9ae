// SPDX-License-Identifier: Apache-2.0
//
// cli/words/foreign_words.hpp: words of other programs' command lines, by the tables' `flags` and `command`.
#pragma once

#include <string>
#include <vector>

#include "cli/words/command_line.hpp"

namespace CLI {
class App;
}

namespace ddhost {

// Takes the words of other programs out of `words`, or replaces them by ours. `app` knows our flags. Error: a word has no
// value, or is refused.
void take_foreign_words(std::vector<std::string>& words, CommandLine& line, const CLI::App& app);

}  // namespace ddhost
