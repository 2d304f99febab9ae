// SPDX-License-Identifier: Apache-2.0
#include "engine/record/terminal_line.hpp"

#include <cstdio>

#include "base/terminal.hpp"

namespace ddhost {

// A terminal that got narrower has broken the line into rows. The cursor is in the last one.
void TerminalLine::draw(const std::string& text, size_t columns) {
  std::string out;
  if (is_open_.load() && columns > 0 && drawn_columns_ > columns)
    for (size_t row = 0; row < (drawn_columns_ - 1) / columns; ++row) out += "\033[A";
  out += "\r" + text + "\033[J";
  std::fwrite(out.data(), 1, out.size(), stderr);
  std::fflush(stderr);
  drawn_columns_ = columns_of(text);
  is_open_.store(true);
}

void TerminalLine::finish() {
  if (is_open_.exchange(false)) std::fputc('\n', stderr);
}

}  // namespace ddhost
