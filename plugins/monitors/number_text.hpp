// SPDX-License-Identifier: Apache-2.0
//
// Numbers as text: 17 digits, so that a double reads back as itself.
#pragma once

#include <array>
#include <cmath>
#include <cstdio>
#include <string>

#include "ddh/kind/monitor.h"

// `not_finite`: the text for a nan and infinities.
inline std::string number_text(const ddh_row_value& value, const char* not_finite) {
  if (value.is_flag != 0) return value.value != 0 ? "true" : "false";
  if (!std::isfinite(value.value)) return not_finite;
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.17g", value.value);
  return text.data();
}
