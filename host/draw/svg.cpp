// SPDX-License-Identifier: Apache-2.0
//
// draw/svg.cpp: a chart as SVG.
#include <array>
#include <cstdio>

#include "ddh/sdk/plugin.hpp"
#include "draw/curve.hpp"
#include "draw/scale.hpp"
#include "draw/text.hpp"

namespace ddhost {
namespace {

constexpr std::array<const char*, 8> kLineColors = {"#2563c9", "#d9730d", "#2b8a3e", "#c92a2a",
                                                    "#7b3fb5", "#0b8f9c", "#8a6d1b", "#c2408c"};

std::string pixels(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

// The plane of the points, in pixels.
struct Plane {
  double left, top, width, height;
  Scale scale;
  [[nodiscard]] double x(double value) const { return left + scale.x.place(value) * width; }
  [[nodiscard]] double y(double value) const { return top + (1 - scale.y.place(value)) * height; }
};

std::string axes(const Plane& plane) {
  std::string out;
  for (const double tick : ticks(plane.scale.y, 5)) {
    const std::string y = pixels(plane.y(tick));
    out += ddh::str("<line x1=\"", pixels(plane.left), "\" x2=\"", pixels(plane.left + plane.width), "\" y1=\"", y,
                    "\" y2=\"", y, "\" stroke=\"#8884\"/><text x=\"", pixels(plane.left - 6), "\" y=\"", y,
                    "\" dy=\".35em\" text-anchor=\"end\">", short_number(tick), "</text>\n");
  }
  for (const double tick : ticks(plane.scale.x, 6))
    out += ddh::str("<text x=\"", pixels(plane.x(tick)), "\" y=\"", pixels(plane.top + plane.height + 16),
                    "\" text-anchor=\"middle\">", short_number(tick), "</text>\n");
  return out;
}

std::string line_of(const Chart& chart, const Chart::Line& line, const Plane& plane, const char* color) {
  std::string path;
  const Point* only = nullptr;
  size_t n = 0;
  for (const Point& p : line.points) {
    if (!is_shown(chart, p)) continue;
    path += (n++ == 0 ? "M" : " ") + pixels(plane.x(p.x)) + "," + pixels(plane.y(p.y));
    only = &p;
  }
  if (n == 1)
    return ddh::str("<circle cx=\"", pixels(plane.x(only->x)), "\" cy=\"", pixels(plane.y(only->y)),
                    "\" r=\"3\" fill=\"", color, "\"/>\n");
  return ddh::str("<path d=\"", path, "\" fill=\"none\" stroke=\"", color,
                  "\" stroke-width=\"1.6\" stroke-linejoin=\"round\"/>\n");
}

}  // namespace

std::string as_svg(const Chart& chart, size_t width, size_t height, bool is_file) {
  constexpr size_t kMostNamed = 12;
  const Scale scale = scale_of(chart);
  const size_t named = std::min(chart.lines.size(), kMostNamed);
  const double below = 26 + 17 * static_cast<double>(named);
  const Plane plane{64, 30, static_cast<double>(width) - 80, static_cast<double>(height) - 30, scale};
  std::string out = ddh::str("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", width, " ",
                             pixels(static_cast<double>(height) + below), "\" width=\"", width, "\" role=\"img\">\n");
  if (is_file) out += "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  out += "<g font-family=\"system-ui,sans-serif\" font-size=\"12\" fill=\"currentColor\">\n";
  out += ddh::str("<text x=\"8\" y=\"16\" font-weight=\"600\">", escaped(chart.title), "</text>\n");
  if (scale.is_empty) out += "<text x=\"64\" y=\"60\">no values</text>\n";
  if (!scale.is_empty) out += axes(plane);
  for (size_t i = 0; i < chart.lines.size(); ++i) {
    const Chart::Line& line = chart.lines[i];
    const char* color = kLineColors[i % kLineColors.size()];
    if (!scale.is_empty) out += line_of(chart, line, plane, color);
    if (i >= kMostNamed) continue;
    const double y = plane.top + plane.height + 34 + 17 * static_cast<double>(i);
    out += ddh::str("<rect x=\"64\" y=\"", pixels(y - 9), "\" width=\"11\" height=\"11\" fill=\"", color,
                    "\"/><text x=\"82\" y=\"", pixels(y + 1), "\">", escaped(line.name));
    if (!line.points.empty()) out += ": " + short_number(line.points.back().y);
    out += "</text>\n";
  }
  return out + "</g>\n</svg>\n";
}

}  // namespace ddhost
