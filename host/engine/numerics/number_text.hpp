// SPDX-License-Identifier: Apache-2.0
//
// engine/numerics/number_text.hpp: numbers in messages.
#pragma once

#include <string>

namespace ddhost {

// The shortest text that reads back as the same number: "10", "0.1", "1048576", "1e+30".
std::string number_text(double value);

}  // namespace ddhost
