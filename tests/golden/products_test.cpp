// SPDX-License-Identifier: Apache-2.0
//
// The matrix products of linear layers against sums in double, and the promise that an added gradient is a complete product.
#include "../../models/ops/products.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "support/golden_fill.hpp"

using namespace ddhost::test;

namespace {

// The largest difference seen.
class Worst {
 public:
  void see(float got, double expected) {
    const double difference = std::abs(static_cast<double>(got) - expected);
    worst_ = std::max(worst_, std::isnan(difference) ? 1e30 : difference);
  }
  [[nodiscard]] double value() const { return worst_; }

 private:
  double worst_ = 0;
};

// sum_k a[k * a_step] b[k * b_step]
double dot(const float* a, int64_t a_step, const float* b, int64_t b_step, int64_t n) {
  double sum = 0;
  for (int64_t k = 0; k < n; ++k) sum += static_cast<double>(a[k * a_step]) * static_cast<double>(b[k * b_step]);
  return sum;
}

size_t size(int64_t a, int64_t b) { return static_cast<size_t>(a * b); }

}  // namespace

TEST_CASE("the products of a linear layer are right, odd sizes and turned forward included") {
  const std::string name = GENERATE(from_range(ops::product_names()));
  const ops::LinearShape s = GENERATE(ops::LinearShape{1, 5, 3}, ops::LinearShape{7, 33, 301},
                                      ops::LinearShape{300, 96, 130}, ops::LinearShape{66, 70, 600});
  CAPTURE(name, s.rows, s.in, s.out);
  const auto x = golden_uni("x", size(s.rows, s.in)), w = golden_uni("w", size(s.out, s.in)),
             dy = golden_uni("dy", size(s.rows, s.out)), bias = golden_uni("bias", size(1, s.out));
  std::vector<float> y(dy.size()), dx(x.size()), dw(w.size());
  const auto products = ops::make_products(name);
  products->forward(s, x.data(), w.data(), bias.data(), y.data());
  products->backward_input(s, dy.data(), w.data(), dx.data());
  products->backward_weight(s, dy.data(), x.data(), dw.data(), false);
  Worst worst;
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t o = 0; o < s.out; ++o) {
      const double expected =
          dot(&x[size(r, s.in)], 1, &w[size(o, s.in)], 1, s.in) + static_cast<double>(bias[size(o, 1)]);
      worst.see(y[size(r, s.out) + size(o, 1)], expected);
    }
    for (int64_t i = 0; i < s.in; ++i) {
      const double expected = dot(&dy[size(r, s.out)], 1, &w[size(i, 1)], s.in, s.out);
      worst.see(dx[size(r, s.in) + size(i, 1)], expected);
    }
  }
  for (int64_t o = 0; o < s.out; ++o) {
    for (int64_t i = 0; i < s.in; ++i) {
      const double expected = dot(&dy[size(o, 1)], s.out, &x[size(i, 1)], s.in, s.rows);
      worst.see(dw[size(o, s.in) + size(i, 1)], expected);
    }
  }

  REQUIRE(worst.value() < 1e-4);

  // A bias-free forward, and the same bits at the next call.
  std::vector<float> again(y.size());
  products->forward(s, x.data(), w.data(), nullptr, again.data());
  REQUIRE(static_cast<double>(again[0] + bias[0]) == Approx(static_cast<double>(y[0])).margin(1e-5));
  products->forward(s, x.data(), w.data(), bias.data(), again.data());
  REQUIRE(again == y);
}

TEST_CASE("an added gradient is the complete product and one addition, bit for bit") {
  const std::string name = GENERATE(from_range(ops::product_names()));
  const int64_t rows = GENERATE(16, 64, 256, 1024);
  CAPTURE(name, rows);
  const ops::LinearShape s{rows, 128, 384};
  const auto x = golden_uni("x", size(rows, s.in)), dy = golden_uni("dy", size(rows, s.out)),
             before = golden_uni("before", size(s.out, s.in), 30.0);
  const auto products = ops::make_products(name);
  std::vector<float> written(before.size()), added = before;
  products->backward_weight(s, dy.data(), x.data(), written.data(), false);
  products->backward_weight(s, dy.data(), x.data(), added.data(), true);
  std::vector<float> expected = before;
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += written[i];
  REQUIRE(added == expected);
}

TEST_CASE("the products of no rows are nothing and a zero gradient") {
  const std::string name = GENERATE(from_range(ops::product_names()));
  const ops::LinearShape s{0, 4, 3};
  const std::vector<float> w(12, 1.0F);
  std::vector<float> dw(12, 5.0F);
  float nothing = 7;
  const auto products = ops::make_products(name);
  products->forward(s, &nothing, w.data(), nullptr, &nothing);
  products->backward_input(s, &nothing, w.data(), &nothing);
  products->backward_weight(s, &nothing, &nothing, dw.data(), true);
  REQUIRE(dw == std::vector<float>(12, 5.0F));
  products->backward_weight(s, &nothing, &nothing, dw.data(), false);
  REQUIRE(dw == std::vector<float>(12, 0.0F));
  REQUIRE(nothing == 7);
}
