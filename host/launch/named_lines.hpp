// SPDX-License-Identifier: Apache-2.0
//
// launch/named_lines.hpp: the lines of one stream of one rank, each with a name before it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddhost {

class NamedLines {
 public:
  static constexpr size_t kLongestLine = 8192;  // bytes; a longer one becomes several, cut between characters

  // Whole lines go to `stream`, a descriptor, at once.
  NamedLines(int stream, std::string name) : stream_(stream), name_(std::move(name)) {}

  void add(std::string_view text);
  // Writes what has no end of line.
  void end();

 private:
  void write_line(size_t bytes);

  const int stream_;
  const std::string name_;
  std::string line_;
};

}  // namespace ddhost
