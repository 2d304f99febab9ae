// SPDX-License-Identifier: Apache-2.0
//
// engine/numerics/number_text.hpp: numbers in messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddhost {

// The shortest text that reads back as the same number: "10", "0.1", "1048576", "1e+30".
std::string number_text(double value);

// "1 rank", "2 ranks", "2 micro-batches"
std::string counted(uint64_t count, std::string_view noun);

}  // namespace ddhost
