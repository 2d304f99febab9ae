// SPDX-License-Identifier: Apache-2.0
//
// Flat operations on the CPU: values, order of sums, aliasing, and equal bits at every vector width.
#include "engine/numerics/kernels.hpp"

#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "ddh/sdk/kernels/lowp.hpp"
#include "ddh/sdk/kernels/simd.hpp"
#include "ddh/sdk/plugin.hpp"
#include "fixtures/harness/cpu_device.hpp"
#include "fixtures/harness/same_bits.hpp"

namespace {

using namespace ddhost::kernels;
using ddh::SimdLevel;
using ddh::flat::fill;
using ddh::flat::scale;
using ddhost::test::same_bits;

// Every bit pattern but NaN, so that comparing bits is fair.
std::vector<float> numbers(uint64_t numel, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> x(numel);
  for (float& value : x) {
    const auto bits = static_cast<uint32_t>(random());
    value = std::bit_cast<float>((bits & 0x7f800000u) >= 0x7e000000u ? bits & 0xbfffffffu : bits);
  }
  return x;
}

// Nearest number of a 16-bit format by search among its finite values: slow, obviously right.
template <class Format>
uint16_t nearest(float value, uint16_t infinity) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(static_cast<double>(value));
  uint16_t low = 0, high = infinity;  // Format(low) <= magnitude; infinity stands for the next power of two
  const auto number = [&](uint16_t h) {
    return h == infinity ? 2.0 * std::ldexp(1.0, std::ilogb(Format::to_f32(static_cast<uint16_t>(infinity - 1))))
                         : static_cast<double>(Format::to_f32(h));
  };
  if (magnitude >= number(infinity)) return sign | infinity;
  while (high - low > 1) {
    const auto middle = static_cast<uint16_t>((low + high) / 2);
    (number(middle) <= magnitude ? low : high) = middle;
  }
  const double down = magnitude - number(low), up = number(high) - magnitude;
  return sign | (down < up || (down == up && low % 2 == 0) ? low : high);
}

// A body that uses what optimizers use: products, sums, a root, a quotient, a rounding.
struct Mixed {
  DDH_SIMD_BODY void run(float* dst, uint16_t* half, const float* a, const float* b, uint64_t numel) {
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) {
      const float v = 0.9f * b[i] + (0.1f * a[i]) * a[i];
      dst[i] = a[i] * 0.99f - 0.001f * (b[i] / (std::sqrt(v < 0 ? -v : v) * 1.7f + 1e-8f));
      half[i] = ddh::F16::from_f32(dst[i]);
    }
  }
};

}  // namespace

TEST_CASE("every vector width gives the same bits, tails included") {
  for (const uint64_t numel : {1u, 15u, 16u, 17u, 1000u, 1037u}) {
    const auto a = numbers(numel, 1), b = numbers(numel, 2);
    std::vector<float> expected(numel), got(numel);
    std::vector<uint16_t> expected_half(numel), got_half(numel);
    ddh::Kernel<Mixed>::at(SimdLevel::base)(expected.data(), expected_half.data(), a.data(), b.data(), numel);
    for (int32_t level = 1; level <= static_cast<int32_t>(ddh::simd_level()); ++level) {
      ddh::Kernel<Mixed>::at(static_cast<SimdLevel>(level))(got.data(), got_half.data(), a.data(), b.data(), numel);
      CHECK(same_bits(got, expected));
      CHECK(got_half == expected_half);
    }
    // One element at a time is the narrowest cut.
    for (uint64_t i = 0; i < numel; ++i) ddh::Kernel<Mixed>::run(&got[i], &got_half[i], &a[i], &b[i], 1);
    CHECK(same_bits(got, expected));
  }
}

TEST_CASE("casts from fp32 round to nearest even") {
  auto x = numbers(20000, 3);
  for (uint32_t h = 0; h < 0x7c00; ++h) {  // every half, its neighbours and the ties between halves
    const float value = ddh::F16::to_f32(static_cast<uint16_t>(h));
    const float next = ddh::F16::to_f32(static_cast<uint16_t>(h + 1));
    const float tie = h == 0x7bff ? 65520.0f : value / 2 + next / 2;
    for (const float y : {value, tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 1e30f)}) x.push_back(-y);
  }
  std::vector<uint16_t> f16(x.size()), bf16(x.size());
  cast(f16.data(), DDH_F16, x.data(), DDH_F32, x.size());
  cast(bf16.data(), DDH_BF16, x.data(), DDH_F32, x.size());
  uint64_t wrong = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    wrong += f16[i] != nearest<ddh::F16>(x[i], 0x7c00);
    wrong += bf16[i] != nearest<ddh::Bf16>(x[i], 0x7f80);
  }
  CHECK(wrong == 0);
}

TEST_CASE("casts to fp32 are exact, and back again the same number") {
  std::vector<uint16_t> all(65536), back(65536), through(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<float> wide(65536);
  for (const int32_t dtype : {DDH_F16, DDH_BF16}) {
    cast(wide.data(), DDH_F32, all.data(), dtype, all.size());
    cast(back.data(), dtype, wide.data(), DDH_F32, all.size());
    cast(through.data(), dtype, all.data(), dtype, all.size());
    CHECK(through == all);
    const uint32_t infinity = dtype == DDH_F16 ? 0x7c00 : 0x7f80;
    const uint32_t quiet = dtype == DDH_F16 ? 0x200 : 0x40;
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < 65536; ++i) {
      const bool nan = (i & 0x7fffu) > infinity;
      wrong += std::isnan(wide[i]) != nan || back[i] != (nan ? i | quiet : i);
      if (dtype == DDH_BF16 || nan || (i & 0x7fffu) == infinity) continue;
      const uint32_t e = (i >> 10) & 31, f = i & 1023;
      const double value = e == 0 ? std::ldexp(f, -24) : std::ldexp(1024 + f, static_cast<int>(e) - 25);
      wrong += wide[i] != static_cast<float>((i & 0x8000u) != 0 ? -value : value);
    }
    CHECK(wrong == 0);
  }
  uint16_t one = 0;
  const uint16_t one_bf16 = 0x3f80;
  cast(&one, DDH_F16, &one_bf16, DDH_BF16, 1);
  CHECK(one == 0x3c00);
  CHECK_THROWS_AS(cast(&one, DDH_I32, &one_bf16, DDH_BF16, 1), ddh::Error);
}

TEST_CASE("a NaN with only low bits stays a NaN when it is cast") {
  const float nan = std::bit_cast<float>(0x7f800001u);
  std::vector<float> x(40, nan);
  std::vector<uint16_t> y(40);
  cast(y.data(), DDH_BF16, x.data(), DDH_F32, 40);
  for (const uint16_t h : y) CHECK(std::isnan(ddh::Bf16::to_f32(h)));
  cast(y.data(), DDH_F16, x.data(), DDH_F32, 40);
  for (const uint16_t h : y) CHECK(std::isnan(ddh::F16::to_f32(h)));
}

TEST_CASE("fill, scale, add and the search for a non-finite value") {
  std::vector<float> x(1000);
  fill(x.data(), DDH_F32, 1000, 1.5);
  scale(x.data(), 1000, -2.0f);
  add(x.data(), x.data(), 1000);
  CHECK(x == std::vector<float>(1000, -6.0f));
  std::vector<double> d(9);
  fill(d.data(), DDH_F64, 9, 0.1);
  CHECK(d == std::vector<double>(9, 0.1));
  std::vector<uint16_t> h(9);
  fill(h.data(), DDH_F16, 9, 1);
  CHECK(h == std::vector<uint16_t>(9, 0x3c00));
  std::vector<int32_t> n(9, 7);
  fill(n.data(), DDH_I32, 8, 0);
  CHECK(n == std::vector<int32_t>{0, 0, 0, 0, 0, 0, 0, 0, 7});
  CHECK_THROWS_AS(fill(n.data(), DDH_I32, 9, 1), ddh::Error);
  x.assign(10000, std::numeric_limits<float>::max());
  CHECK_FALSE(any_nonfinite(x.data(), x.size()));
  for (const size_t at : {size_t{0}, size_t{5000}, size_t{9999}})
    for (const float bad : {std::nanf(""), -std::numeric_limits<float>::infinity()}) {
      auto y = x;
      y[at] = bad;
      CHECK(any_nonfinite(y.data(), y.size()));
    }
}

TEST_CASE("a sum of rounded sources is the sum of their bf16 values, also on top of one of them") {
  constexpr uint64_t kNumel = 5001;
  for (const uint32_t n : {1u, 2u, 3u, 4u, 5u, 9u}) {
    for (const uint32_t block : {1u, 2u, 4u, 7u}) {
      std::vector<std::vector<float>> given, rounded;
      for (uint32_t k = 0; k < n; ++k) {
        given.push_back(numbers(kNumel, k));
        rounded.push_back(given.back());
        round_to_bf16(rounded.back().data(), kNumel);
        for (uint64_t i = 0; i < kNumel; ++i)
          CHECK(rounded[k][i] == ddh::Bf16::to_f32(ddh::Bf16::from_f32(given[k][i])));
      }
      std::vector<const float*> raw, exact;
      for (uint32_t k = 0; k < n; ++k) raw.push_back(given[k].data()), exact.push_back(rounded[k].data());
      std::vector<float> expected(kNumel);
      ordered_sum(expected.data(), {exact.data(), n, block}, 0, kNumel, false);
      const SumSources sources{raw.data(), n, block, /*round_to_bf16=*/true};
      std::vector<std::vector<float>> everywhere = given;
      std::vector<float*> dsts;
      for (std::vector<float>& dst : everywhere) dsts.push_back(dst.data());
      std::vector<const float*> srcs(dsts.begin(), dsts.end());
      ordered_sum_to_all(dsts.data(), n, {srcs.data(), n, block, true}, 0, kNumel);
      for (const std::vector<float>& dst : everywhere) CHECK(same_bits(dst, expected));
      // What the sum starts from keeps its low bits.
      std::vector<float> total(kNumel, 1.000001F), expected_total = total;
      ordered_sum(total.data(), sources, 0, kNumel, true);
      ordered_sum(expected_total.data(), {exact.data(), n, block}, 0, kNumel, true);
      CHECK(same_bits(total, expected_total));
    }
  }
  const float nothing = 0;
  const float* srcs[] = {&nothing};
  float kept = 1.000001F;
  ordered_sum(&kept, {srcs, 1, 1, true}, 0, 1, true);
  CHECK(kept == 1.000001F);
}

namespace {

// The law of sums, element by element: `start` is what the fold begins with, or nullptr.
float sum_by_law(const std::vector<std::vector<float>>& ranks, uint32_t block, uint64_t i, const float* start) {
  float total = start != nullptr ? *start : 0;
  for (uint32_t begin = 0; begin < ranks.size(); begin += block) {
    float part = ranks[begin][i];
    for (uint32_t k = begin + 1; k < std::min<size_t>(ranks.size(), begin + block); ++k) part += ranks[k][i];
    total = begin == 0 && start == nullptr ? part : total + part;
  }
  return total;
}

}  // namespace

TEST_CASE("sums over ranks keep the order of ranks within blocks, then of blocks, and start from what is accumulated") {
  constexpr uint64_t kOffset = 3, kNumel = 5001;
  for (uint32_t n = 1; n <= 11; ++n)
    for (const uint32_t block : {1u, 2u, 3u, 4u, 5u, 8u, 16u}) {
      INFO(n << " ranks in blocks of " << block);
      std::vector<std::vector<float>> ranks;
      std::vector<const float*> srcs;
      for (uint32_t k = 0; k < n; ++k) ranks.push_back(numbers(kOffset + kNumel, 100 + k));
      for (const auto& rank : ranks) srcs.push_back(rank.data());
      const std::vector<float> base = numbers(kNumel, 5);
      std::vector<float> expected(kNumel), expected_on_base(kNumel);
      for (uint64_t i = 0; i < kNumel; ++i) {
        expected[i] = sum_by_law(ranks, block, kOffset + i, nullptr);
        expected_on_base[i] = sum_by_law(ranks, block, kOffset + i, &base[i]);
      }
      const SumSources sources{srcs.data(), n, block};
      std::vector<float> got(kNumel), on_base = base;
      ordered_sum(got.data(), sources, kOffset, kNumel, false);
      CHECK(same_bits(got, expected));
      ordered_sum(on_base.data(), sources, kOffset, kNumel, true);
      CHECK(same_bits(on_base, expected_on_base));

      auto in_place = ranks;  // the result over the last source
      srcs.clear();
      for (auto& rank : in_place) srcs.push_back(rank.data());
      ordered_sum(in_place[n - 1].data() + kOffset, {srcs.data(), n, block}, kOffset, kNumel, false);
      CHECK(std::memcmp(in_place[n - 1].data() + kOffset, expected.data(), kNumel * sizeof(float)) == 0);

      std::vector<float*> dsts;  // all_reduce: every source is a destination
      for (auto& rank : ranks) dsts.push_back(rank.data());
      srcs.assign(dsts.begin(), dsts.end());
      ordered_sum_to_all(dsts.data(), n, {srcs.data(), n, block}, kOffset, kNumel);
      for (const auto& rank : ranks)
        CHECK(std::memcmp(rank.data() + kOffset, expected.data(), kNumel * sizeof(float)) == 0);
    }
  float out = 0;
  const float* const srcs[] = {&out};
  CHECK_THROWS_AS(ordered_sum(&out, {nullptr, 0, 1}, 0, 1, false), ddh::Error);
  CHECK_THROWS_AS(ordered_sum(&out, {srcs, 1, 0}, 0, 1, false), ddh::Error);
}

TEST_CASE("a sum that is written past the caches has the bits of the sum, aligned or not, and keeps a copy") {
  constexpr uint64_t kNumel = 4093, kOffset = 3;
  struct alignas(64) Chunk {
    std::array<float, kNumel + 4> values{};
  };
  for (uint32_t n = 1; n <= 6; ++n)
    for (const uint32_t block : {1u, 2u, 3u, 8u})
      for (const bool rounds : {false, true})
        for (const uint64_t shift : {uint64_t{0}, uint64_t{1}}) {
          INFO(n << " ranks in blocks of " << block << ", rounded: " << rounds << ", shift " << shift);
          std::vector<std::vector<float>> ranks;
          std::vector<const float*> srcs;
          for (uint32_t k = 0; k < n; ++k) ranks.push_back(numbers(kOffset + kNumel, 300 + k));
          for (const auto& rank : ranks) srcs.push_back(rank.data());
          const SumSources sources{srcs.data(), n, block, rounds};
          std::vector<float> expected(kNumel);
          ordered_sum(expected.data(), sources, kOffset, kNumel, false);
          Chunk dst, kept;
          ordered_sum_streamed(dst.values.data() + shift, kept.values.data(), sources, kOffset, kNumel);
          ddhost::kernels::end_streams();
          CHECK(std::memcmp(dst.values.data() + shift, expected.data(), kNumel * sizeof(float)) == 0);
          CHECK(std::memcmp(kept.values.data(), expected.data(), kNumel * sizeof(float)) == 0);
          CHECK(dst.values[kNumel + shift] == 0);
        }
}

TEST_CASE("a sum over micro-batches in order equals a sum over all ranks, for any distribution") {
  constexpr uint64_t kNumel = 300;
  std::vector<std::vector<float>> grads;  // of 12 global micro-batches
  for (uint32_t g = 0; g < 12; ++g) grads.push_back(numbers(kNumel, 40 + g));
  const auto sum = [&](uint32_t n_ranks, uint32_t block) {
    std::vector<float> total(kNumel);
    for (uint32_t g = 0; g < grads.size(); g += n_ranks) {
      std::vector<const float*> srcs;
      for (uint32_t r = 0; r < n_ranks; ++r) srcs.push_back(grads[g + r].data());
      ordered_sum(total.data(), {srcs.data(), n_ranks, block}, 0, kNumel, g > 0);
    }
    return total;
  };
  for (const uint32_t n_ranks : {2u, 3u, 4u, 6u, 12u}) CHECK(same_bits(sum(n_ranks, 1), sum(1, 1)));
  for (const uint32_t n_ranks : {4u, 6u, 12u}) CHECK(same_bits(sum(n_ranks, 2), sum(2, 2)));
  CHECK_FALSE(same_bits(sum(4, 2), sum(4, 1)));
}

TEST_CASE("a sum starts from its first source, so a negative zero stays one") {
  const float zero = -0.0f;
  const float* srcs[] = {&zero, &zero, &zero, &zero, &zero};
  for (uint32_t n = 1; n <= 5; ++n) {
    for (const uint32_t block : {1u, 2u, 8u}) {
      float out = 1;
      ordered_sum(&out, {srcs, n, block}, 0, 1, false);
      CHECK(std::signbit(out));
    }
  }
}

TEST_CASE("the flat operations table reports errors with a sentence") {
  const ddh_flatops_api& table = *ddhost::test::cpu_device().flatops;
  std::vector<float> x = {1, 2, 3};
  void* const context = ddhost::test::cpu_context();
  ddh::call(table.scale, context, x.data(), uint64_t{3}, 2.0, nullptr);
  CHECK(x == std::vector<float>{2, 4, 6});
  ddh::ErrorBuffer err;
  CHECK(table.fill(context, x.data(), DDH_I64, 1, 2.0, nullptr, err.get()) == DDH_UNIMPLEMENTED);
  CHECK_THAT(err.text(), Catch::Contains("fill has no dtype"));
}
