// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/kernels/dropout.hpp: masks at every width of vectors.
#include "ddh/sdk/kernels/dropout.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "fixtures/harness/same_bits.hpp"

using ddh::Dropout;
using ddh::DropoutKey;
using ddh::Kernel;
using ddh::SimdLevel;
using ddhost::test::same_bits;

namespace {

const DropoutKey kKey{.seed = 7, .step = 3, .global_micro_batch = 2, .position = 5, .site = 1};
constexpr uint64_t kFirst = (uint64_t{1} << 40) + 3;

}  // namespace

TEST_CASE("every width of vectors drops the elements that factor() names, also at the ends of arrays") {
  const Dropout dropout(0.3, kKey);
  const uint64_t key = dropout.stream().key();
  for (const uint64_t numel : {0, 1, 7, 15, 16, 17, 63, 1000}) {
    std::vector<float> factors, kept, x(numel);
    for (uint64_t i = 0; i < numel; ++i) {
      x[i] = i % 5 == 0   ? std::numeric_limits<float>::infinity()
             : i % 5 == 1 ? std::numeric_limits<float>::denorm_min()
                          : static_cast<float>(i) - 300.5F;
      factors.push_back(dropout.factor(kFirst + i));
      kept.push_back(factors[i] == 0 ? 0.0F : x[i] * factors[i]);
    }
    for (int32_t level = 0; level <= static_cast<int32_t>(ddh::simd_level()); ++level) {
      CAPTURE(numel, level);
      std::vector<float> applied = x, filled(numel);
      const auto at = static_cast<SimdLevel>(level);
      Kernel<ddh::detail::ApplyDropout>::at(at)(applied.data(), key, kFirst, dropout.threshold(), dropout.scale(),
                                                numel);
      Kernel<ddh::detail::FillDropout>::at(at)(filled.data(), key, kFirst, dropout.threshold(), dropout.scale(), numel);
      CHECK(same_bits(applied, kept));
      CHECK(same_bits(filled, factors));
    }
  }
}

TEST_CASE("a dropped element is 0 even if it was a NaN, and the share of dropped ones is the probability") {
  const Dropout dropout(0.3, kKey);
  std::vector<float> x(100000, std::numeric_limits<float>::quiet_NaN());
  dropout.apply(x.data(), 0, x.size());
  size_t dropped = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (dropout.factor(i) == 0) ++dropped;
    CHECK((x[i] == 0) == (dropout.factor(i) == 0));
  }
  CHECK(static_cast<double>(dropped) / static_cast<double>(x.size()) == Approx(0.3).margin(0.01));
}
