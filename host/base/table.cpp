// SPDX-License-Identifier: Apache-2.0
#include "base/table.hpp"

#include <algorithm>

#include "base/terminal.hpp"

namespace ddhost {
namespace {
constexpr size_t kBetween = 2;  // blanks before each column

std::string padding(size_t width, const std::string& cell) {
  return std::string(width - std::min(width, columns_of(cell)), ' ');
}
}  // namespace

size_t FittedTable::width_of(size_t column) const {
  size_t width = 0;
  for (const auto& row : rows_) width = std::max(width, columns_of(row[column]));
  return width;
}

size_t FittedTable::columns() const {
  size_t all = 0;
  for (size_t c = 0; c < rows_.front().size(); ++c) all += kBetween + width_of(c);
  return all;
}

void FittedTable::add_block(std::string& out, size_t first, size_t end) const {
  for (const auto& row : rows_) {
    std::string line = std::string(kBetween, ' ') + row[0] + padding(width_of(0), row[0]);
    for (size_t c = first; c < end; ++c) line += std::string(kBetween, ' ') + padding(width_of(c), row[c]) + row[c];
    out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
}

std::string FittedTable::text(size_t columns) const {
  const size_t all = rows_.front().size();
  std::string out;
  for (size_t first = 1; first < all;) {
    size_t end = first, used = kBetween + width_of(0);
    while (end < all && (end == first || used + kBetween + width_of(end) <= columns))
      used += kBetween + width_of(end++);
    add_block(out, first, end);
    first = end;
  }
  return out;
}

}  // namespace ddhost
