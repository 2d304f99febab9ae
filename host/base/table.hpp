// SPDX-License-Identifier: Apache-2.0
//
// base/table.hpp: a table of text that fits into a width. Columns that do not fit follow below, under the labels of the rows.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ddhost {

class FittedTable {
 public:
  // `header`: of all columns; the first has the labels of the rows and is aligned to the left.
  explicit FittedTable(std::vector<std::string> header) : rows_{std::move(header)} {}

  // As many cells as the header has.
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  // Two blanks before each line.
  [[nodiscard]] std::string text(size_t columns) const;
  // The columns that it takes where none of its columns has to follow below.
  [[nodiscard]] size_t columns() const;

 private:
  [[nodiscard]] size_t width_of(size_t column) const;
  void add_block(std::string& out, size_t first, size_t end) const;

  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ddhost
