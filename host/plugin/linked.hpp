// SPDX-License-Identifier: Apache-2.0
//
// plugin/linked.hpp: the plugins that are linked into this program. CMake writes the list (cmake/linked_plugins.cmake),
// so this code names no plugin.
#pragma once

#include <vector>

#include "ddh/abi.h"
#include "plugin/library.hpp"

namespace ddhost {

struct LinkedPlugin {
  const char* name;  // of the library
  ddh_plugin_entry_fn entry;
};

const std::vector<LinkedPlugin>& linked_plugins();

// Negotiates with a linked plugin as with one from a file, and checks its result. Error: why it can't be used.
const ddh_module& linked_module(const LinkedPlugin& plugin, InterfaceLookup lookup);

}  // namespace ddhost
