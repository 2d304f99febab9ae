// SPDX-License-Identifier: Apache-2.0
//
// config/foreign_file.hpp: recognizes a configuration file of DeepSpeed or Accelerate, which --config does not read.
#pragma once

#include <string>

#include "base/json.hpp"

namespace ddhost {

// What the file is and which options say the same here; "" if it is neither. `root`: the file as JSON, or null if it is not
// JSON.
std::string foreign_file_text(const std::string& text, const Json& root);

}  // namespace ddhost
