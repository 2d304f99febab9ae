// SPDX-License-Identifier: Apache-2.0
#include "engine/numerics/number_text.hpp"

#include <cstdio>
#include <cstdlib>

namespace ddhost {

std::string number_text(double value) {
  char text[32];
  for (const int digits : {12, 17}) {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value) break;
  }
  return text;
}

std::string counted(uint64_t count, std::string_view noun) {
  const std::string_view plural = noun.ends_with("ch") ? "es" : "s";
  return std::to_string(count).append(" ").append(noun).append(count == 1 ? "" : plural);
}

}  // namespace ddhost
