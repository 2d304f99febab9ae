// SPDX-License-Identifier: Apache-2.0
//
// engine/numerics/gradient_norm.hpp: phase 1 of a step on one rank: adds squares of reduced gradients to an ExactSum,
// and finds the first value that is not finite.
#pragma once

#include <cstdint>
#include <span>

#include "ddh/service/optim.h"
#include "engine/numerics/exact_norm.hpp"

namespace ddhost {

class GradientNorm {
 public:
  // The place of the first non-finite value: lowest parameter, then lowest block, so it does not depend on sharding.
  struct Place {
    int32_t param = -1;         // -1: every value is finite
    uint64_t param_offset = 0;  // start of the 64-element block
  };

  void clear() { *this = GradientNorm(); }

  // Adds the parts of `ranges` in [begin, begin + numel) of a flat buffer; grad[i] is element begin + i. Both ends are
  // on the 64-element grid, or beyond the last range. Ranges are sorted by flat_offset.
  void add(const float* grad, uint64_t begin, uint64_t numel, std::span<const ddh_range> ranges);

  // Adds the sum of squares of a range that begins at `param_offset`: ExactSum::kWords words, then the index of its first
  // block that is not finite, or ExactSum::kNone (ddh.flatops exact_squares).
  void add_words(const uint64_t* words, int32_t param, uint64_t param_offset);

  [[nodiscard]] ExactSum& sum() { return sum_; }
  [[nodiscard]] const Place& first_nonfinite() const { return place_; }

 private:
  void note(const Place& found);

  ExactSum sum_;
  Place place_;
};

}  // namespace ddhost
