// SPDX-License-Identifier: Apache-2.0
//
// Widths of texts, and texts and tables that fit into a width.
#include "base/terminal.hpp"

#include <catch2/catch.hpp>
#include <sstream>

#include "base/table.hpp"

using namespace ddhost;

namespace {
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}
}  // namespace

TEST_CASE("a Chinese character takes two columns, an accent that combines none", "[terminal]") {
  CHECK(columns_of("loss") == 4);
  CHECK(columns_of("损失") == 4);
  CHECK(columns_of("e\xCC\x81") == 1);
  CHECK(columns_of("é") == 1);
  CHECK(columns_of("🚀") == 2);
  CHECK(columns_of("\xFF\xFE") == 2);  // not UTF-8
}

TEST_CASE("a text is cut between characters, so that it fits", "[terminal]") {
  CHECK(cut_to_columns("损失 1", 3) == "损");
  CHECK(cut_to_columns("损失 1", 5) == "损失 ");
  CHECK(cut_to_columns("abc", 10) == "abc");
  CHECK(cut_to_columns("abc", 0).empty());
}

TEST_CASE("lines are broken at blanks, and what follows is indented", "[terminal]") {
  CHECK(wrapped("one two three\nfour", 9, 2) == "one two\n  three\nfour");
  CHECK(wrapped("  kept indent", 40) == "  kept indent");
  CHECK(wrapped("averylongword and", 5) == "averylongword\nand");  // a word stays whole
  CHECK(wrapped("line\n", 10) == "line\n");
  CHECK(wrapped("of strategy.offload_optimizer.device", 20, 2, LongWords::divide) ==
        "of\n  strategy.offload_\n  optimizer.device");
  for (const std::string& line : lines_of(wrapped(std::string(200, 'x'), 20, 4, LongWords::divide)))
    CHECK(columns_of(line) <= 20);
}

TEST_CASE("columns of a table that do not fit follow below with the labels of the rows", "[terminal]") {
  FittedTable table({"", "rank 0", "rank 1", "all"});
  table.add({"param", "损失", "2.5 MB", "3.0 MB"});
  CHECK(table.text(80) == "         rank 0  rank 1     all\n  param    损失  2.5 MB  3.0 MB\n");
  CHECK(table.columns() == 31);
  for (const size_t columns : {16, 20, 24, 31})
    for (const std::string& line : lines_of(table.text(columns))) CHECK(columns_of(line) <= columns);
  const std::string narrow = table.text(20);
  CHECK(lines_of(narrow).size() == 6);
  CHECK(narrow.find("3.0 MB") != std::string::npos);  // nothing is lost
}
