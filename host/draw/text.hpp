// SPDX-License-Identifier: Apache-2.0
//
// draw/text.hpp: texts of unknown origin as parts of a line on a terminal, of a page and of a table.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ddhost {

// One line: control characters, also those that turn the direction of text, and bytes that are not UTF-8 become \x0a,
// \u202e. A text of more than `most` bytes loses its middle.
std::string one_line(std::string_view text, size_t most = 200);
// The same for HTML, SVG and their attributes.
std::string escaped(std::string_view text, size_t most = 200);
// The first characters of a line that fit into `columns`; "…" stands for what was cut off.
std::string cut_to(std::string_view line, size_t columns);

// "1.234", "12.3k", "4.56e-05", "nan": at most 9 characters.
std::string short_number(double value);
// "2m 03s", "1h 02m".
std::string duration(double seconds);
// Seconds of "90s", "10m", "12h", "30d" or "2w"; nothing if it is no time.
std::optional<double> seconds_from_text(std::string_view text);
inline constexpr const char* kTimeForms = "give a number with s, m, h, d or w: 10m";

}  // namespace ddhost
