// SPDX-License-Identifier: Apache-2.0
//
// plugin/commands.hpp: `ddhost list` and `ddhost inspect`. Neither runs code of a library in this process.
#pragma once

#include <iosfwd>
#include <string>

#include "plugin/registry.hpp"

namespace ddhost {

// One line for every plugin found; libraries that can't be loaded come last, with the reason. Returns the exit code.
int list_plugins(const Registry& registry, std::ostream& out);

// Everything about one file, `choice` as for Registry::find. Works on a file that can't be loaded, says why, and
// returns 1 when this host can't use it.
int inspect_plugin(const Registry& registry, const std::string& choice, std::ostream& out);

}  // namespace ddhost
