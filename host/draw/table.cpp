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

std::string text_row(const std::vector<std::string>& cells, const std::vector<size_t>& widths, size_t left) {
  std::string out;
  for (size_t i = 0; i < cells.size(); ++i) out += (i == 0 ? "" : "  ") + padded(cells[i], widths[i], i < left);
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

std::string as_text(const Table& table, size_t most_columns) {
  std::vector<size_t> widths;
  std::vector<std::vector<std::string>> lines = {table.head};
  lines.insert(lines.end(), table.rows.begin(), table.rows.end());
  for (std::vector<std::string>& line : lines)
    for (size_t i = 0; i < line.size(); ++i) {
      line[i] = cut_to(one_line(line[i]), most_columns);
      if (i == widths.size()) widths.push_back(0);
      widths[i] = std::max(widths[i], columns_of(line[i]));
    }
  std::string out;
  for (const std::vector<std::string>& line : lines) out += text_row(line, widths, table.left);
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
