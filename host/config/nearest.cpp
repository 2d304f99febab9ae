// SPDX-License-Identifier: Apache-2.0
//
// config/nearest.cpp: edit distance with transpositions of adjacent characters.
#include "config/nearest.hpp"

#include <algorithm>

namespace ddhost {

size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table: i-2, i-1, i.
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 200;  // the time is the product of both lengths
  std::string best;
  if (name.size() > kLongest) return best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance >= best_distance || distance >= name.size()) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

}  // namespace ddhost
