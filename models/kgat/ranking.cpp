// SPDX-License-Identifier: Apache-2.0
#include "ranking.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ddh/sdk/plugin.hpp"

namespace kgat {
namespace {

bool holds(const std::vector<int32_t>& items, int32_t item) {
  return std::binary_search(items.begin(), items.end(), item);
}

// The gain of a hit at a rank from 0.
double gain(int64_t rank) { return 1 / std::log2(static_cast<double>(rank) + 2); }

double gain_of_first(int64_t hits) {
  double sum = 0;
  for (int64_t r = 0; r < hits; ++r) sum += gain(r);
  return sum;
}

// The first `n` items that the user did not train on, the best first.
std::vector<int32_t> best_items(const float* scores, int64_t n_items, const std::vector<int32_t>& train, int64_t n) {
  std::vector<int32_t> items;
  items.reserve(static_cast<size_t>(n_items));
  auto next = train.begin();
  for (int32_t i = 0; i < n_items; ++i) {
    if (next != train.end() && *next == i) {
      ++next;
    } else {
      items.push_back(i);
    }
  }
  const auto before = [&](int32_t a, int32_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; };
  const auto end = items.begin() + std::min<int64_t>(n, static_cast<int64_t>(items.size()));
  if (end != items.end()) std::nth_element(items.begin(), end, items.end(), before);
  items.erase(end, items.end());
  std::sort(items.begin(), items.end(), before);
  return items;
}

}  // namespace

std::vector<std::string> ranking_names(const std::vector<int64_t>& ks) {
  std::vector<std::string> names;
  for (const int64_t k : ks) {
    for (const char* metric : kRankingMetrics) names.push_back(ddh::str(metric, "@", k));
  }
  return names;
}

void rank(const float* scores, int64_t n_items, const std::vector<int32_t>& train, const std::vector<int32_t>& test,
          const std::vector<int64_t>& ks, double* values) {
  if (std::any_of(scores, scores + n_items, [](float score) { return std::isnan(score); })) {
    std::fill_n(values, ks.size() * kMetricsOfK, std::numeric_limits<double>::quiet_NaN());
    return;
  }
  const std::vector<int32_t> items = best_items(scores, n_items, train, ks.back());
  const auto n_test = static_cast<int64_t>(test.size());
  const int64_t retrievable = std::count_if(test.begin(), test.end(), [&](int32_t i) { return !holds(train, i); });
  int64_t hits = 0, at = 0;
  double gains = 0;
  for (const int64_t k : ks) {
    for (; at < std::min(k, static_cast<int64_t>(items.size())); ++at) {
      if (!holds(test, items[static_cast<size_t>(at)])) continue;
      ++hits;
      gains += gain(at);
    }
    const auto share = [&](double ideal) { return ideal > 0 ? gains / ideal : 0; };
    *values++ = static_cast<double>(hits) / static_cast<double>(n_test);
    *values++ = static_cast<double>(hits) / static_cast<double>(k);
    *values++ = hits > 0 ? 1 : 0;
    *values++ = share(gain_of_first(std::min(k, n_test)));
    *values++ = share(gain_of_first(hits));
    *values++ = share(gain_of_first(std::min(k, retrievable)));
  }
}

}  // namespace kgat
