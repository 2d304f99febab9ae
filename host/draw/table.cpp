// SPDX-License-Identifier: Apache-2.0
#include "draw/table.hpp"

#include <algorithm>

#include "base/terminal.hpp"
#include "draw/text.hpp"

namespace ddhost {
namespace {

std::string padded(const std::string& cell, size_t columns, bool left) {
  const std::string blanks(columns - std::min(columns, columns_of(cell)), ' ');
  return left ? cell + blanks : blanks + cell;
}

// The first cell, and those from `begin` to `end`.
std::string text_row(const std::vector<std::string>& cells, const std::vector<size_t>& widths, size_t left,
                     size_t begin, size_t end) {
  std::string out = padded(cells[0], widths[0], left > 0);
  for (size_t i = begin; i < end; ++i) out += "  " + padded(cells[i], widths[i], i < left);
  out.erase(out.find_last_not_of(' ') + 1);
  return out + '\n';
}

std::string markdown_cell(const std::string& cell) {
  std::string out;
  for (const char c : escaped(cell)) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string csv_cell(const std::string& cell) {
  std::string plain = one_line(cell);
  if (plain.find_first_of(",\"") == std::string::npos) return plain;
  std::string out = "\"";
  for (const char c : plain) out.append(c == '"' ? 2 : 1, c);
  return out + '"';
}

}  // namespace

std::string as_text(const Table& table, size_t most_columns, size_t width) {
  constexpr size_t kLeastCell = 8;
  if (table.head.empty()) return "";
  const auto limit = [&](size_t left) { return std::min(most_columns, std::max(kLeastCell, left)); };
  std::vector<size_t> widths(table.head.size(), 0);
  std::vector<std::vector<std::string>> lines = {table.head};
  lines.insert(lines.end(), table.rows.begin(), table.rows.end());
  for (std::vector<std::string>& line : lines) line.resize(widths.size());
  for (size_t i = 0; i < widths.size(); ++i)
    for (std::vector<std::string>& line : lines) {
      line[i] = cut_to(one_line(line[i]), limit(i == 0 ? width / 2 : width - std::min(width, widths[0] + 2)));
      widths[i] = std::max(widths[i], columns_of(line[i]));
    }
  std::string out;
  size_t begin = 1;
  do {
    size_t end = begin, used = widths[0];
    while (end < widths.size() && (end == begin || used + 2 + widths[end] <= width)) used += 2 + widths[end++];
    for (const std::vector<std::string>& line : lines) out += text_row(line, widths, table.left, begin, end);
    begin = end;
  } while (begin < widths.size());
  return out;
}

std::string as_markdown(const Table& table) {
  const auto row = [](const std::vector<std::string>& cells) {
    std::string out = "|";
    for (const std::string& cell : cells) out += " " + markdown_cell(cell) + " |";
    return out + "\n";
  };
  std::string out = row(table.head) + "|";
  for (size_t i = 0; i < table.head.size(); ++i) out += i < table.left ? "---|" : "---:|";
  out += '\n';
  for (const std::vector<std::string>& cells : table.rows) out += row(cells);
  return out;
}

std::string as_csv(const Table& table) {
  std::string out;
  const auto add = [&](const std::vector<std::string>& cells) {
    for (size_t i = 0; i < cells.size(); ++i) out += (i == 0 ? "" : ",") + csv_cell(cells[i]);
    out += "\r\n";
  };
  add(table.head);
  for (const std::vector<std::string>& cells : table.rows) add(cells);
  return out;
}

std::string as_html(const Table& table) {
  std::string out = "<table>\n<tr>";
  for (size_t i = 0; i < table.head.size(); ++i)
    out += (i < table.left ? "<th>" : "<th class=\"n\">") + escaped(table.head[i]) + "</th>";
  out += "</tr>\n";
  for (const std::vector<std::string>& cells : table.rows) {
    out += "<tr>";
    for (size_t i = 0; i < cells.size(); ++i)
      out += (i < table.left ? "<td>" : "<td class=\"n\">") + escaped(cells[i]) + "</td>";
    out += "</tr>\n";
  }
  return out + "</table>\n";
}

}  // namespace ddhost
