// SPDX-License-Identifier: Apache-2.0
//
// The sum of squares does not depend on cuts, order or ranks, and is correctly rounded.
#include "engine/numerics/exact_norm.hpp"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace {

using ddhost::ExactSum;
using ddhost::GradientNorm;
using ddhost::kNormBlock;

enum class Kind { normal, any_finite, tiny };

std::vector<float> values(uint64_t numel, uint32_t seed, Kind kind) {
  std::mt19937 random(seed);
  std::vector<float> x(numel);
  for (float& value : x) {
    auto bits = static_cast<uint32_t>(random());
    if (kind == Kind::normal) bits = (bits & 0x80ffffffu) | 0x3c000000u;
    if (kind == Kind::tiny) bits &= 0x80ffffffu;
    if ((bits & 0x7f800000u) == 0x7f800000u) bits &= 0x807fffffu;
    value = std::bit_cast<float>(bits);
  }
  return x;
}

// The sum as a whole number of 2^-320, in 32-bit digits: slow, and nothing shared with the class under test.
std::vector<uint64_t> digits_of(const std::vector<double>& sums) {
  std::vector<uint64_t> digits(24, 0);
  for (double sum : sums) {
    int exponent = 0;
    auto mantissa = static_cast<uint64_t>(std::ldexp(std::frexp(sum, &exponent), 53));
    for (int bit = exponent - 53 + 320; mantissa != 0; mantissa >>= 1, ++bit) {
      if ((mantissa & 1) == 0) continue;
      REQUIRE(bit >= 0);
      digits[static_cast<size_t>(bit) / 32] += uint64_t{1} << (bit % 32);
    }
    for (size_t i = 0; i + 1 < digits.size(); ++i) {
      digits[i + 1] += digits[i] >> 32;
      digits[i] &= 0xffffffffu;
    }
  }
  return digits;
}

std::vector<double> block_sums(const std::vector<float>& x) {
  std::vector<double> sums;
  for (size_t i = 0; i < x.size(); i += kNormBlock)
    sums.push_back(ddhost::block_sum_of_squares(x.data() + i, std::min<uint64_t>(kNormBlock, x.size() - i)));
  return sums;
}

}  // namespace

TEST_CASE("a block's squares are summed in the documented order") {
  const auto x = values(64, 3, Kind::normal);
  double s[8] = {};
  for (size_t k = 0; k < 8; ++k)
    for (size_t j = 0; j < 8; ++j) s[j] += static_cast<double>(x[8 * k + j]) * x[8 * k + j];
  const double expected = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
  CHECK(ddhost::block_sum_of_squares(x.data(), 64) == expected);
  ExactSum sum;
  sum.add_range(x.data(), 64);
  CHECK(sum.total() == expected);
}

TEST_CASE("the limbs hold the sum of the block sums exactly, over the whole range of fp32") {
  for (const Kind kind : {Kind::normal, Kind::any_finite, Kind::tiny})
    for (const uint64_t numel : {1u, 63u, 64u, 65u, 1000u, 20000u}) {
      const auto x = values(numel, 5, kind);
      ExactSum sum;
      CHECK(sum.add_range(x.data(), numel) == ExactSum::kNone);
      const auto words = sum.words();
      const auto digits = digits_of(block_sums(x));
      for (uint32_t i = 0; i < ExactSum::kLimbs; ++i) CHECK(static_cast<uint64_t>(words[i]) == digits[i]);
    }
}

TEST_CASE("smallest and largest values stay exact") {
  std::vector<float> x(64 * 100, std::numeric_limits<float>::denorm_min());
  ExactSum sum;
  sum.add_range(x.data(), x.size());
  CHECK(sum.total() == std::ldexp(6400.0, -298));
  std::fill(x.begin(), x.end(), std::numeric_limits<float>::max());
  sum.clear();
  sum.add_range(x.data(), x.size());
  const double square = std::ldexp(1.0 - std::ldexp(1.0, -24), 128);
  CHECK(sum.total() == Approx(6400.0 * square * square).epsilon(1e-15));
  CHECK_FALSE(sum.nonfinite());
  CHECK(ExactSum().total() == 0);
}

TEST_CASE("any cut on the grid and any order of merging give the same bits") {
  const auto x = values(64 * 300 + 17, 11, Kind::any_finite);
  ExactSum whole;
  whole.add_range(x.data(), x.size());
  std::mt19937 random(1);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<ExactSum> ranks(1 + random() % 9);
    for (uint64_t begin = 0; begin < x.size();) {
      const uint64_t n = std::min<uint64_t>(64 * (1 + random() % 90), x.size() - begin);
      ranks[random() % ranks.size()].add_range(x.data() + begin, n);
      begin += n;
    }
    std::shuffle(ranks.begin(), ranks.end(), random);
    ExactSum::Words summed{};
    ExactSum merged;
    for (ExactSum& rank : ranks) {
      const auto words = rank.words();
      for (uint32_t i = 0; i < ExactSum::kWords; ++i) summed[i] += words[i];
      merged.merge(words.data());
    }
    ExactSum of_sum;
    of_sum.merge(summed.data());
    CHECK(merged.words() == whole.words());
    CHECK(of_sum.words() == whole.words());
    CHECK(of_sum.total() == whole.total());
  }
}

TEST_CASE("the total is rounded once, to nearest even") {
  const double one = 1.0, half_ulp = std::ldexp(1.0, -53), dust = std::ldexp(1.0, -298);
  ExactSum sum;
  sum.add_block(one);
  sum.add_block(half_ulp);
  CHECK(sum.total() == one);  // a tie goes to even
  sum.add_block(dust);
  CHECK(sum.total() == one + 2 * half_ulp);  // the smallest bit there is breaks it
  sum.clear();
  std::mt19937_64 random(2);
  long double reference = 0;  // 64 bits: exact for these
  for (int i = 0; i < 1000; ++i) {
    const auto value = static_cast<double>(random() >> 12) * 0x1p-30;
    sum.add_block(value);
    reference += static_cast<long double>(value);
    REQUIRE(sum.total() == static_cast<double>(reference));
  }
}

TEST_CASE("a value that is not finite is found with its block, and the total says which kind") {
  auto x = values(64 * 10 + 5, 4, Kind::normal);
  x[64 * 3 + 8] = -std::numeric_limits<float>::infinity();
  x[64 * 10 + 4] = std::numeric_limits<float>::infinity();
  ExactSum sum;
  CHECK(sum.add_range(x.data(), x.size()) == 3);
  CHECK(sum.nonfinite());
  CHECK(std::isinf(sum.total()));
  x[64 * 3 + 8] = 1;
  CHECK(sum.add_range(x.data(), x.size()) == 10);
  x[64 * 4] = std::numeric_limits<float>::quiet_NaN();
  CHECK(sum.add_range(x.data(), x.size()) == 4);
  CHECK(std::isnan(sum.total()));
  ExactSum other;
  other.merge(sum.words().data());
  CHECK(std::isnan(other.total()));
}

TEST_CASE("the norm counts parameters and no padding, and names the first bad one whatever the pieces") {
  std::vector<float> flat(64 * 8, 3.0f);
  const std::vector<ddh_range> ranges = {{2, 0, 0, 0, 100}, {5, 0, 64, 128, 64}, {6, 0, 0, 256, 200}};
  GradientNorm norm;
  norm.add(flat.data(), 0, flat.size(), ranges);
  CHECK(norm.sum().total() == 9.0 * (100 + 64 + 200));
  CHECK(norm.first_nonfinite().param == -1);
  flat[130] = flat[256 + 150] = std::nanf("");
  for (const uint64_t piece : {64u, 128u, 192u, 512u}) {
    norm.clear();
    for (uint64_t end = flat.size(); end > 0;) {  // backwards, as gradients arrive
      const uint64_t begin = end > piece ? (end - 1) / piece * piece : 0;
      norm.add(flat.data() + begin, begin, end - begin, ranges);
      end = begin;
    }
    CHECK(norm.first_nonfinite().param == 5);
    CHECK(norm.first_nonfinite().param_offset == 64);
  }
}
