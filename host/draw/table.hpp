// SPDX-License-Identifier: Apache-2.0
//
// draw/table.hpp: one table in four forms. Cells may hold any text; each form makes them safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ddhost {

struct Table {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;  // as long as the head
  size_t left = 1;  // the first columns are texts, set to the left; numbers are set to the right
};

// For a terminal, with two blanks between columns. A cell of more than `most_columns` is cut. Columns that do not fit into
// `width` follow below, under the first one.
std::string as_text(const Table& table, size_t most_columns = 60, size_t width = SIZE_MAX);
std::string as_markdown(const Table& table);
std::string as_csv(const Table& table);  // RFC 4180
std::string as_html(const Table& table);

}  // namespace ddhost
