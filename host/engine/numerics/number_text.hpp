// SPDX-License-Identifier: Apache-2.0
//
// engine/numerics/number_text.hpp: numbers in sentences.
#pragma once

#include <string>

namespace ddhost {

// A number that reads back as itself, without the noise of its binary form: "10", "0.1", "1048576", "1e+30".
std::string number_text(double value);

}  // namespace ddhost
