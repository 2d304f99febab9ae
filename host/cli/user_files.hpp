// SPDX-License-Identifier: Apache-2.0
//
// cli/user_files.hpp: the user's configuration from all files of the command line: our own, and those of other programs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/words/command_line.hpp"
#include "config/foreign/translation.hpp"
#include "config/user_config.hpp"
#include "ddh/sdk/plugin.hpp"
#include "plugin/registry.hpp"

namespace ddhost {

struct UserFiles {
  UserConfig user;
  std::vector<std::string> notes;  // sentences: which file of another program was taken, what has no effect
};

// A file of another program can't be taken. The exit code is 2, as for other mistakes on the command line.
struct DDH_HIDDEN ForeignFileError : ddh::Error {
  using ddh::Error::Error;
};

// Throws ForeignFileError.
// Error: --compat names a program, and no file is of this format.
void check_compat(const CommandLine& line, const std::string& format);
UserFiles read_user_files(const CommandLine& line, const std::vector<Override>& overrides, const Registry& registry);

// The translation of such a file for the command line's other words.
Translation translate_for(const ForeignChoice& choice, const UserConfig& user, const std::function<int64_t()>& ranks);

}  // namespace ddhost
