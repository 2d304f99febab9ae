// SPDX-License-Identifier: Apache-2.0
//
// draw/curve.hpp: the values of a run over its steps, in a bounded amount of memory: where there are many steps, pairs of
// neighbours are merged, and each keeps its lowest and its highest value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddhost {

struct Point {
  double x = 0, y = 0;
};

class Curve {
 public:
  explicit Curve(std::string name) : name_(std::move(name)) {}

  // A value that is not finite is only counted.
  void add(int64_t step, double value);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::string label() const;                 // for a legend: "loss", "loss (3 not finite)"
  [[nodiscard]] uint64_t count() const { return count_; }  // of finite values
  [[nodiscard]] uint64_t nonfinite() const { return nonfinite_; }
  [[nodiscard]] std::optional<Point> last() const { return last_; }
  [[nodiscard]] std::optional<Point> lowest() const;
  [[nodiscard]] std::optional<Point> highest() const;
  // At most about `most`, by step.
  [[nodiscard]] std::vector<Point> points(size_t most) const;

 private:
  struct Bucket {
    Point first, second;  // the lowest and the highest, by step; equal: there is one
  };
  [[nodiscard]] static Bucket merged(const Bucket& a, const Bucket& b);

  static constexpr size_t kMost = 4096;
  std::string name_;
  std::vector<Bucket> buckets_;
  size_t per_bucket_ = 1, in_last_ = 0;
  uint64_t count_ = 0, nonfinite_ = 0;
  std::optional<Point> last_;
};

// Curves in one chart.
struct Chart {
  std::string title;
  struct Line {
    std::string name;
    std::vector<Point> points;
  };
  std::vector<Line> lines;
  bool is_logarithmic = false;  // values that are not positive are left out
};

// For a terminal: dots of braille characters with axes and a legend, `columns` wide; below 20 columns only the legend.
// `color`: one for each line; else several lines are drawn with a mark for each.
std::string as_braille(const Chart& chart, size_t columns, size_t rows, bool color);
// The element <svg>, which is a file of its own if `is_file`. It holds no script and refers to nothing.
std::string as_svg(const Chart& chart, size_t width, size_t height, bool is_file);

}  // namespace ddhost
