// SPDX-License-Identifier: Apache-2.0
//
// draw/scale.hpp: the ranges of a chart's axes, and round numbers on them.
#pragma once

#include <vector>

#include "draw/curve.hpp"

namespace ddhost {

struct Range {
  double low = 0, high = 1;
  bool is_logarithmic = false;
  // 0 to 1 within the range.
  [[nodiscard]] double place(double value) const;
};

struct Scale {
  Range x, y;
  bool is_empty = true;  // there is no value to draw
};

// The ranges that hold all points. A value that is much larger than the others, as losses of first steps are, stays inside.
Scale scale_of(const Chart& chart);
// About `n` round numbers in the range.
std::vector<double> ticks(const Range& range, int n);
// Whether the chart shows the point.
bool is_shown(const Chart& chart, const Point& point);

}  // namespace ddhost
