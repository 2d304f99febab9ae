// SPDX-License-Identifier: Apache-2.0
//
// draw/braille.cpp: a chart for a terminal. A braille character has 2 x 4 dots.
#include <algorithm>
#include <array>
#include <cmath>

#include "ddh/sdk/plugin.hpp"
#include "draw/curve.hpp"
#include "draw/scale.hpp"
#include "draw/text.hpp"

namespace ddhost {
namespace {

constexpr std::array<int, 6> kTerminalColors = {34, 33, 32, 31, 35, 36};
constexpr std::string_view kMarks = "*o+x#@";  // of lines that have no color

// How a line is told from the others.
enum class Look { plain, colors, marks };

struct Cell {
  unsigned dots = 0;
  size_t line = 0;  // that was drawn last
};

class Canvas {
 public:
  Canvas(size_t columns, size_t rows) : columns_(columns), rows_(rows), cells_(columns * rows) {}

  // In dots; y counts from the top.
  void dot(long x, long y, size_t line) {
    constexpr std::array<std::array<unsigned, 4>, 2> kBits = {{{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}};
    if (x < 0 || y < 0 || x >= wide() || y >= high()) return;
    Cell& cell = cells_[static_cast<size_t>(y / 4) * columns_ + static_cast<size_t>(x / 2)];
    cell.dots |= kBits[static_cast<size_t>(x % 2)][static_cast<size_t>(y % 4)];
    cell.line = line;
  }
  void stroke(long x0, long y0, long x1, long y1, size_t line) {
    const long n = std::max({std::labs(x1 - x0), std::labs(y1 - y0), 1L});
    for (long i = 0; i <= n; ++i) dot(x0 + (x1 - x0) * i / n, y0 + (y1 - y0) * i / n, line);
  }
  [[nodiscard]] long wide() const { return static_cast<long>(2 * columns_); }
  [[nodiscard]] long high() const { return static_cast<long>(4 * rows_); }

  [[nodiscard]] std::string row(size_t row, Look look) const {
    std::string out;
    for (size_t c = 0; c < columns_; ++c) {
      const Cell& cell = cells_[row * columns_ + c];
      if (look == Look::marks) {
        out += cell.dots == 0 ? ' ' : kMarks[cell.line % kMarks.size()];
        continue;
      }
      const unsigned code = 0x2800 + cell.dots;
      const std::string character = {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
                                     static_cast<char>(0x80 | (code & 0x3F))};
      const bool is_colored = look == Look::colors && cell.dots != 0;
      if (is_colored) out += ddh::str("\033[", kTerminalColors[cell.line % kTerminalColors.size()], "m");
      out += character;
      if (is_colored) out += "\033[0m";
    }
    return out;
  }

 private:
  size_t columns_, rows_;
  std::vector<Cell> cells_;
};

void draw(const Chart& chart, const Scale& scale, Canvas& canvas) {
  for (size_t l = 0; l < chart.lines.size(); ++l) {
    long last_x = -1, last_y = -1;
    for (const Point& p : chart.lines[l].points) {
      if (!is_shown(chart, p)) continue;
      const long x = std::lround(scale.x.place(p.x) * static_cast<double>(canvas.wide() - 1)),
                 y = canvas.high() - 1 - std::lround(scale.y.place(p.y) * static_cast<double>(canvas.high() - 1));
      if (last_x >= 0)
        canvas.stroke(last_x, last_y, x, y, l);
      else
        canvas.dot(x, y, l);
      last_x = x;
      last_y = y;
    }
  }
}

std::string legend(const Chart& chart, size_t columns, Look look) {
  std::string out;
  for (size_t l = 0; l < chart.lines.size(); ++l) {
    const Chart::Line& line = chart.lines[l];
    std::string text = one_line(line.name);
    if (!line.points.empty()) text += ": " + short_number(line.points.back().y);
    if (line.points.empty()) text += ": no values";
    text = cut_to(text, columns > 4 ? columns - 4 : columns);
    if (look == Look::colors)
      out += ddh::str("  \033[", kTerminalColors[l % kTerminalColors.size()], "m■\033[0m ", text, "\n");
    else
      out += (look == Look::marks ? ddh::str("  ", kMarks[l % kMarks.size()], " ") : "  ") + text + "\n";
  }
  return out;
}

}  // namespace

std::string as_braille(const Chart& chart, size_t columns, size_t rows, bool color) {
  constexpr size_t kLabel = 10, kLeast = 20;
  std::string out = cut_to(one_line(chart.title), columns) + "\n";
  const Scale scale = scale_of(chart);
  const Look look = color ? Look::colors : chart.lines.size() > 1 ? Look::marks : Look::plain;
  if (scale.is_empty || columns < kLeast) return out + legend(chart, columns, look);
  const size_t wide = columns - kLabel - 2;
  Canvas canvas(wide, rows);
  draw(chart, scale, canvas);
  std::vector<std::string> labels(rows);
  for (const double tick : ticks(scale.y, static_cast<int>(std::max<size_t>(rows / 4, 2)))) {
    const auto row = static_cast<size_t>(std::lround((1 - scale.y.place(tick)) * static_cast<double>(rows - 1)));
    if (row < rows) labels[row] = short_number(tick);
  }
  for (size_t row = 0; row < rows; ++row) {
    const std::string& label = labels[row];
    out += std::string(kLabel - std::min(kLabel, label.size()), ' ') + label + (label.empty() ? " │" : " ┤") +
           canvas.row(row, look) + "\n";
  }
  const std::string first = short_number(scale.x.low), last = "step " + short_number(scale.x.high);
  const size_t used = first.size() + last.size();
  out += std::string(kLabel + 1, ' ') + "└" + std::string(used < wide ? 0 : 1, ' ') + first +
         std::string(used < wide ? wide - used : 1, ' ') + last + "\n";
  return out + legend(chart, columns, look);
}

}  // namespace ddhost
