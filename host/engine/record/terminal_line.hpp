// SPDX-License-Identifier: Apache-2.0
//
// engine/record/terminal_line.hpp: the line at the bottom of a terminal that is drawn again and again. Other output takes its
// place.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>

namespace ddhost {

// On stderr. A log may be written by other threads, which take the line away.
class TerminalLine {
 public:
  TerminalLine() = default;
  TerminalLine(const TerminalLine&) = delete;
  TerminalLine& operator=(const TerminalLine&) = delete;

  // `text` fits into `columns`, the present width.
  void draw(const std::string& text, size_t columns);
  // What removes the line, to be written before other output; "": there is no line.
  [[nodiscard]] std::string_view take() { return is_open_.exchange(false) ? "\r\033[K" : ""; }
  // Keeps the line as it is; what is written next follows below.
  void finish();

 private:
  std::atomic<bool> is_open_{false};
  size_t drawn_columns_ = 0;
};

}  // namespace ddhost
