// SPDX-License-Identifier: Apache-2.0
//
// engine/numerics/exact_norm.hpp: the sum of squares for the gradient norm, independent of sharding.
//
// Squares of fp32 are exact in double. Each 64-element block (counted from its parameter's start) is summed in a fixed
// order, and the block sums are added without rounding. So every sharding on the block grid, every order and every
// world size give the same bits.
//
// Why 20 limbs of 32 bits are exact: the smallest fp32 is 2^-149, so every square is a multiple of 2^-298, and so is
// every rounded sum of them. The largest square is below 2^256, a block's sum at most 2^262, and 2^58 blocks stay below
// 2^320. Limb i weighs 2^(32 i - 320): the limbs cover 2^-320 .. 2^320. A limb is an int64, so 2^29 blocks fit before
// carries must be propagated, and 2^30 ranks may add normalised limbs.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "ddh/service/optim.h"

namespace ddhost {

inline constexpr uint64_t kNormBlock = 64;  // elements

// Sum of squares of one block of up to 64 elements, in double:
//   s[j] += x[8k + j]^2 with k rising, then ((s0+s4) + (s2+s6)) + ((s1+s5) + (s3+s7)).
// Infinite or NaN exactly when an element is.
[[nodiscard]] double block_sum_of_squares(const float* x, uint64_t numel);

class ExactSum {
 public:
  static constexpr uint32_t kLimbs = 20;
  static constexpr uint32_t kWords = kLimbs + 2;  // what ranks exchange: limbs, infinite blocks, NaN blocks
  static constexpr uint64_t kNone = UINT64_MAX;
  using Words = std::array<int64_t, kWords>;

  void clear() { *this = ExactSum(); }

  // Adds the sum of one block: not negative, a multiple of 2^-298, below 2^263; or infinite or NaN, which is counted.
  void add_block(double sum);

  // Adds the squares of a range that starts on the 64-element grid of its parameter; a short last block is the
  // parameter's end. Returns the index within the range of the first block with a non-finite value, or kNone.
  uint64_t add_range(const float* x, uint64_t numel);

  // The words in normal form (limbs in [0, 2^32)): sums of ranks' words by int64 addition can be merged.
  [[nodiscard]] Words words();

  // Adds words, or the sum of the words of up to 2^30 ranks.
  void merge(const int64_t* words);

  [[nodiscard]] bool nonfinite() const { return words_[kLimbs] != 0 || words_[kLimbs + 1] != 0; }

  // The sum, correctly rounded; NaN if an element is NaN, else infinity if one is infinite.
  [[nodiscard]] double total() const;

 private:
  // Add block sums; return the index of the first that is not finite, or n.
  uint32_t add_blocks(const double* sums, uint32_t n);
  uint32_t add_single_blocks(const double* sums, uint32_t n);
  void normalise();  // propagates carries

  Words words_{};
  uint64_t pending_ = 0;  // blocks since carries were propagated
};

// Phase 1 of a step on one rank: adds squares of reduced gradients to an ExactSum, and finds the first value that is not
// finite.
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
