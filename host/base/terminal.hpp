// SPDX-License-Identifier: Apache-2.0
//
// base/terminal.hpp: the width of a terminal, and texts that fit into a width. A column is the width of a Latin letter; a
// Chinese character takes two, a combining accent none.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace ddhost {

// Of COLUMNS; `otherwise`: it is not set, or is no width.
size_t columns_of_environment(size_t otherwise);
// Of the terminal behind a descriptor, or of COLUMNS if that does not know its width; `otherwise`: it is none.
size_t terminal_columns(int fd, size_t otherwise = 80);
// Whether a line on it can be drawn again: it is a terminal, and TERM does not say that it is a simple one.
bool can_redraw(int fd);
// Whether a line can be written to it within this time. A pipe may be full, and nobody may read it.
bool is_writable(int fd, std::chrono::milliseconds patience);

// The columns that a text of UTF-8 takes. Characters of unclear width count as two, so that a line never gets too long.
size_t columns_of(std::string_view text);
// The part of the text that fits.
std::string cut_to_columns(std::string_view text, size_t columns);
// Breaks each line at blanks. Further lines of one begin with `indent` blanks. A longer word stays whole, so that a path can
// be copied, or is divided.
enum class LongWords { keep, divide };
std::string wrapped(std::string_view text, size_t columns, size_t indent = 0, LongWords long_words = LongWords::keep);

}  // namespace ddhost
