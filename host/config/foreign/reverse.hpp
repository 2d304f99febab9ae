// SPDX-License-Identifier: Apache-2.0
//
// config/foreign/reverse.hpp: our configuration as a file of another program, by the same table.
#pragma once

#include <string>
#include <vector>

#include "config/foreign/table.hpp"

namespace ddhost {

struct Reversed {
  Json root = Json::object();
  std::vector<std::string> left_out;  // keys of ours that no key of the program stands for
};

// `ours`: values by dotted key. A key of the program is written only if the table translates it back to exactly these values.
Reversed reversed(const ForeignTable& table, const std::string& version,
                  const std::vector<std::pair<std::string, Json>>& ours);

}  // namespace ddhost
