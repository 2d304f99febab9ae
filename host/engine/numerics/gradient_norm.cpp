// SPDX-License-Identifier: Apache-2.0
//
// engine/numerics/gradient_norm.cpp: see gradient_norm.hpp.
#include "engine/numerics/gradient_norm.hpp"

#include <algorithm>
#include <tuple>

namespace ddhost {

void GradientNorm::add(const float* grad, uint64_t begin, uint64_t numel, std::span<const ddh_range> ranges) {
  const uint64_t end = begin + numel;
  const auto behind = [](const ddh_range& range, uint64_t at) { return range.flat_offset + range.numel <= at; };
  auto range = std::lower_bound(ranges.begin(), ranges.end(), begin, behind);
  for (; range != ranges.end() && range->flat_offset < end; ++range) {
    const uint64_t from = std::max(begin, range->flat_offset);
    const uint64_t to = std::min(end, range->flat_offset + range->numel);
    const uint64_t block = sum_.add_range(grad + (from - begin), to - from);
    if (block == ExactSum::kNone) continue;
    note({range->param, range->param_offset + (from - range->flat_offset) + block * kNormBlock});
  }
}

void GradientNorm::note(const Place& found) {
  if (place_.param < 0 || std::tie(found.param, found.param_offset) < std::tie(place_.param, place_.param_offset))
    place_ = found;
}

void GradientNorm::add_words(const uint64_t* words, int32_t param, uint64_t param_offset) {
  ExactSum::Words sum;
  std::copy_n(words, sum.size(), sum.begin());
  sum_.merge(sum.data());
  const uint64_t block = words[ExactSum::kWords];
  if (block != ExactSum::kNone) note({param, param_offset + block * kNormBlock});
}

}  // namespace ddhost
