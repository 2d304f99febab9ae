// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/standard_output.hpp: the results that a rank prints. stderr is for all other text.
#pragma once

#include <string_view>

namespace ddhost {

// Error: stdout is closed, its reader has ended, or its disk is full.
void write_stdout(std::string_view text);

}  // namespace ddhost
