// SPDX-License-Identifier: Apache-2.0
//
// cli/words/mistakes.hpp: the sentence for what the parser refuses.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace ddhost {

// `arguments`: what the parser was given, so that a flag is called as the user wrote it.
std::string mistake_text(const CLI::App& app, const std::vector<std::string>& arguments, const CLI::ParseError& error);

}  // namespace ddhost
