// SPDX-License-Identifier: Apache-2.0
#include "draw/scale.hpp"

#include <algorithm>
#include <cmath>

namespace ddhost {

double Range::place(double value) const {
  if (is_logarithmic) return (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low));
  return (value - low) / (high - low);
}

bool is_shown(const Chart& chart, const Point& point) {
  constexpr double kMost = 1e300;  // the width of a range must be finite
  return std::fabs(point.y) < kMost && (!chart.is_logarithmic || point.y > 1e-300);
}

Scale scale_of(const Chart& chart) {
  Scale scale;
  for (const Chart::Line& line : chart.lines)
    for (const Point& p : line.points) {
      if (!is_shown(chart, p)) continue;
      if (scale.is_empty) {
        scale = {{p.x, p.x}, {p.y, p.y}, false};
        continue;
      }
      scale.x = {std::min(scale.x.low, p.x), std::max(scale.x.high, p.x)};
      scale.y = {std::min(scale.y.low, p.y), std::max(scale.y.high, p.y)};
    }
  scale.y.is_logarithmic = chart.is_logarithmic;
  if (scale.x.high <= scale.x.low) scale.x.high = scale.x.low + 1;
  const double least = std::max(std::fabs(scale.y.low) * 1e-6, 1e-300);
  if (scale.y.high - scale.y.low < least) {
    if (chart.is_logarithmic) {
      scale.y.low /= 2;
      scale.y.high *= 2;
    } else {
      const double around = scale.y.low == 0 ? 1 : std::fabs(scale.y.low) * 0.5;
      scale.y.low -= around;
      scale.y.high += around;
    }
  }
  return scale;
}

std::vector<double> ticks(const Range& range, int n) {
  std::vector<double> out;
  if (range.is_logarithmic && std::log10(range.high / range.low) >= 2) {
    for (int power = static_cast<int>(std::ceil(std::log10(range.low)));
         power <= static_cast<int>(std::floor(std::log10(range.high))); ++power)
      out.push_back(std::pow(10.0, power));
    const size_t every = (out.size() + static_cast<size_t>(n) - 1) / static_cast<size_t>(n);
    std::vector<double> some;
    for (size_t i = 0; i < out.size(); i += std::max<size_t>(every, 1)) some.push_back(out[i]);
    return some;
  }
  const double raw = (range.high - range.low) / n, power = std::pow(10.0, std::floor(std::log10(raw)));
  if (!(power > 0) || !std::isfinite(power)) return {range.low, range.high};
  const double step = power * (raw / power > 5 ? 10 : raw / power > 2 ? 5 : raw / power > 1 ? 2 : 1);
  constexpr int kMost = 50;
  const double first = std::ceil(range.low / step);
  for (int n_made = 0; n_made < kMost; ++n_made) {
    const double i = first + n_made;
    if (i * step > range.high + step * 1e-9) break;
    out.push_back(i == 0 ? 0 : i * step);
  }
  return out;
}

}  // namespace ddhost
