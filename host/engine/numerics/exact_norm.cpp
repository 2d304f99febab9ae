// SPDX-License-Identifier: Apache-2.0
#include "engine/numerics/exact_norm.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "base/step_extras.hpp"
#include "ddh/sdk/kernels/flat.hpp"
#include "ddh/sdk/kernels/simd.hpp"

namespace ddhost {
namespace {

constexpr uint64_t kGroup = ddh::flat::detail::kSquaresGroup;
static_assert(kNormBlock == ddh::flat::kSquaresBlock);
constexpr uint64_t kMaxPending = uint64_t{1} << 29;  // blocks: each adds less than 2^33 to a limb of 63 bits
constexpr int32_t kLowestExponent = -320;
constexpr uint64_t kLimbMask = 0xffffffff;
constexpr uint64_t kExponentOfBit0 = 755;  // biased exponent of a double whose mantissa's lowest bit is 2^-320
constexpr uint64_t kExponentNonfinite = 0x7ff;
constexpr uint64_t kFraction = 0xfffffffffffffu, kLeadingOne = 0x10000000000000u;

// The bits of a sum, which is not negative, in limbs `limb` to `limb` + 2.
struct SumInLimbs {
  uint64_t limb, low, middle, high;
};
// `bits` of a double with a biased exponent from kExponentOfBit0 to below kExponentNonfinite.
DDH_SIMD_INLINE SumInLimbs in_limbs(uint64_t bits) {
  // The lowest bit of the mantissa, in bits of the limbs: 0 for a sum in [2^-268, 2^-267).
  const uint64_t position = (bits >> 52) - kExponentOfBit0, shift = position % 32;
  const uint64_t mantissa = (bits & kFraction) | kLeadingOne;
  const uint64_t lower = (mantissa & kLimbMask) << shift, upper = (mantissa >> 32) << shift;
  return {position / 32, lower & kLimbMask, (lower >> 32) + (upper & kLimbMask), upper >> 32};
}

// The smallest and the largest bits of sums, which are not negative: as numbers they have the same order.
struct Extremes {
  DDH_SIMD_BODY void run(const double* sums, uint32_t n, int64_t* least, int64_t* most) {
    int64_t low = INT64_MAX, high = 0;
    for (uint32_t b = 0; b < n; ++b) {
      const auto bits = std::bit_cast<int64_t>(sums[b]);
      low = bits < low ? bits : low;
      high = bits > high ? bits : high;
    }
    *least = low;
    *most = high;
  }
};

// Adds to words[0 .. 2] the sums whose lowest bit lies in this limb.
struct LimbSums {
  DDH_SIMD_BODY void run(const double* sums, uint32_t n, uint64_t limb, int64_t* words) {
    uint64_t low = 0, middle = 0, high = 0;
    for (uint32_t b = 0; b < n; ++b) {
      const SumInLimbs sum = in_limbs(std::bit_cast<uint64_t>(sums[b]));
      low += sum.limb == limb ? sum.low : 0;
      middle += sum.limb == limb ? sum.middle : 0;
      high += sum.limb == limb ? sum.high : 0;
    }
    words[0] += static_cast<int64_t>(low);
    words[1] += static_cast<int64_t>(middle);
    words[2] += static_cast<int64_t>(high);
  }
};

#ifdef DDHOST_LEAVES_OUT
// A sum that rounds, for comparison: 64 sums in fp32, which are joined by halves.
struct RoundedSquares {
  DDH_SIMD_BODY void run(const float* x, uint64_t numel, double* sum) {
    float parts[64] = {};
    uint64_t i = 0;
    for (; i + 64 <= numel; i += 64) {
      DDH_SIMD_LOOP
      for (uint64_t k = 0; k < 64; ++k) parts[k] += x[i + k] * x[i + k];
    }
    for (uint64_t k = 0; i + k < numel; ++k) parts[k] += x[i + k] * x[i + k];
    for (uint64_t n = 32; n > 0; n /= 2) {
      DDH_SIMD_LOOP
      for (uint64_t k = 0; k < n; ++k) parts[k] += parts[k + n];
    }
    *sum = static_cast<double>(parts[0]);
  }
};
#endif

}  // namespace

double block_sum_of_squares(const float* x, uint64_t numel) { return ddh::flat::block_sum_of_squares(x, numel); }

void ExactSum::add_block(double sum) { add_blocks(&sum, 1); }

uint32_t ExactSum::add_blocks(const double* sums, uint32_t n) {
  if (n == 0) return 0;
  pending_ += n;
  if (pending_ > kMaxPending) {
    normalise();
    pending_ = n;
  }
  int64_t least = 0, most = 0;
  ddh::Kernel<Extremes>::run(sums, n, &least, &most);
  const auto first = static_cast<uint64_t>(least) >> 52, last = static_cast<uint64_t>(most) >> 52;
  // Blocks of one tensor mostly share a limb. A NaN may have a sign.
  if (least < 0 || first < kExponentOfBit0 || last >= kExponentNonfinite) return add_single_blocks(sums, n);
  for (uint64_t limb = (first - kExponentOfBit0) / 32; limb <= (last - kExponentOfBit0) / 32; ++limb)
    ddh::Kernel<LimbSums>::run(sums, n, limb, &words_[limb]);
  return n;
}

// Some are zero, tiny or not finite.
uint32_t ExactSum::add_single_blocks(const double* sums, uint32_t n) {
  uint32_t first_nonfinite = n;
  for (uint32_t b = 0; b < n; ++b) {
    const auto bits = std::bit_cast<uint64_t>(sums[b]);
    const uint64_t exponent = bits >> 52;
    if (exponent == 0) continue;  // zero: every other sum is at least 2^-298, a normal number
    if (exponent >= kExponentNonfinite) {
      ++words_[kLimbs + (std::isnan(sums[b]) ? 1 : 0)];
      first_nonfinite = std::min(first_nonfinite, b);
      continue;
    }
    if (exponent < kExponentOfBit0) {
      // Bits below 2^-320 are zero, because the sum is a multiple of 2^-298.
      const uint64_t mantissa = ((bits & kFraction) | kLeadingOne) >> (kExponentOfBit0 - exponent);
      words_[0] += static_cast<int64_t>(mantissa & kLimbMask);
      words_[1] += static_cast<int64_t>(mantissa >> 32);
      continue;
    }
    const SumInLimbs sum = in_limbs(bits);
    words_[sum.limb] += static_cast<int64_t>(sum.low);
    words_[sum.limb + 1] += static_cast<int64_t>(sum.middle);
    words_[sum.limb + 2] += static_cast<int64_t>(sum.high);
  }
  return first_nonfinite;
}

uint64_t ExactSum::add_range(const float* x, uint64_t numel) {
#ifdef DDHOST_LEAVES_OUT
  if (!step_includes(StepExtra::norm)) {
    double sum = 0;
    ddh::Kernel<RoundedSquares>::run(x, numel, &sum);
    return add_blocks(&sum, 1) == 0 ? 0 : kNone;
  }
#endif
  const uint64_t full = numel / kNormBlock;
  uint64_t first = kNone;
  std::array<double, kGroup> sums;
  for (uint64_t begin = 0; begin < full; begin += kGroup) {
    const auto n = static_cast<uint32_t>(std::min(kGroup, full - begin));
    ddh::Kernel<ddh::flat::detail::BlockSums>::run(x + begin * kNormBlock, n, sums.data());
    const uint32_t found = add_blocks(sums.data(), n);
    if (found < n && first == kNone) first = begin + found;
  }
  if (numel % kNormBlock != 0) {
    const double sum = block_sum_of_squares(x + full * kNormBlock, numel % kNormBlock);
    if (add_blocks(&sum, 1) == 0 && first == kNone) first = full;
  }
  return first;
}

void ExactSum::normalise() {
  for (uint32_t i = 0; i + 1 < kLimbs; ++i) {
    words_[i + 1] += words_[i] >> 32;
    words_[i] &= static_cast<int64_t>(kLimbMask);
  }
  pending_ = 0;
}

ExactSum::Words ExactSum::words() {
  normalise();
  return words_;
}

void ExactSum::merge(const int64_t* words) {
  normalise();
  for (uint32_t i = 0; i < kWords; ++i) words_[i] += words[i];
  normalise();
}

double ExactSum::total() const {
  if (words_[kLimbs + 1] != 0) return std::numeric_limits<double>::quiet_NaN();
  if (words_[kLimbs] != 0) return std::numeric_limits<double>::infinity();
  ExactSum sum = *this;
  sum.normalise();
  const Words& limbs = sum.words_;
  int32_t top = kLimbs - 1;
  while (top > 0 && limbs[static_cast<size_t>(top)] == 0) --top;
  const auto limb = [&](int32_t i) {
    return i < 0 ? uint64_t{0} : static_cast<uint64_t>(limbs[static_cast<size_t>(i)]);
  };
  if (limb(top) == 0) return 0;
  // The 64 bits from the leading one on, and a sticky bit for all lower bits, so the conversion rounds to nearest even.
  const auto lead = static_cast<uint32_t>(std::countl_zero(static_cast<uint32_t>(limb(top))));
  uint64_t head = (limb(top) << 32 | limb(top - 1)) << lead;
  const uint64_t below = limb(top - 2) << lead;
  head |= below >> 32;
  bool rest = (below & kLimbMask) != 0;
  for (int32_t i = top - 3; i >= 0; --i) rest = rest || limb(i) != 0;
  head |= rest ? 1 : 0;
  return std::ldexp(static_cast<double>(head), 32 * (top - 1) + kLowestExponent - static_cast<int32_t>(lead));
}

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
