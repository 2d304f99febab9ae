// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/standard_output.hpp: the results that a rank prints. stderr is for all other text.
#pragma once

#include <string>
#include <string_view>

namespace ddhost {

// Error: stdout is closed, its reader has ended, or its disk is full.
void write_stdout(std::string_view text);

// A text that a model makes, which may hold any bytes. Files and pipes get it as it is. A terminal gets control characters
// and bytes that are not UTF-8 as \x1b, because they would change the terminal.
class ModelText {
 public:
  ModelText();
  explicit ModelText(bool is_for_terminal) : is_for_terminal_(is_for_terminal) {}
  // What to write for the next piece. A character whose rest is still to come waits for it.
  std::string next(std::string_view piece);
  // What is left at the end of the text.
  std::string rest();

 private:
  const bool is_for_terminal_;
  std::string unfinished_;
};

}  // namespace ddhost
