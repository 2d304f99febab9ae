// SPDX-License-Identifier: Apache-2.0
//
// cli/commands.hpp: the commands of ddhost, each in a file of its name. All return the exit code.
#pragma once

#include <iosfwd>
#include <string>

#include "cli/command_line.hpp"
#include "plugin/registry.hpp"

namespace ddhost {

// `ddhost train`, `ddhost eval`, `ddhost generate`: what ranks do with a model; with --dry-run it prints the effective
// configuration.
int run_model(const CommandLine& line, Registry& registry, std::ostream& out);

// `ddhost list`: one line for every plugin found; libraries that can't be loaded come last, with the reason. Runs no code
// of a library in this process.
int list_plugins(const Registry& registry, std::ostream& out);

// `ddhost inspect`: everything about one file, `choice` as for Registry::find. Runs no code of it in this process. Works on
// a file that can't be loaded, says why, and returns 1 when this host can't use it.
int inspect_plugin(const Registry& registry, const std::string& choice, std::ostream& out);

}  // namespace ddhost
