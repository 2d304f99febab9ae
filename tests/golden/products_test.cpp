// SPDX-License-Identifier: Apache-2.0
//
// The matrix products of linear layers against sums in double, and the rule that an added gradient is a complete product.
#include "../../models/ops/products.hpp"
#include <omp.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <tuple>

#include "../../models/ops/choice.hpp"
#include "../../models/ops/column_sums.hpp"
#include "ddh/sdk/kernels/lowp.hpp"
#include "fixtures/harness/golden_fill.hpp"

using namespace ddhost::test;

namespace {

constexpr std::array<int32_t, 3> kDtypes = {DDH_F32, DDH_BF16, DDH_F16};

// Half the relative distance between neighbours: the error of one rounding.
double roundoff(int32_t dtype) { return dtype == DDH_F32 ? 0x1p-24 : dtype == DDH_BF16 ? 0x1p-8 : 0x1p-11; }

size_t size(int64_t a, int64_t b) { return static_cast<size_t>(a * b); }

float widened(int32_t dtype, uint16_t low) {
  return dtype == DDH_BF16 ? ddh::Bf16::to_f32(low) : ddh::F16::to_f32(low);
}

// Values of a dtype: as the products take them, and as numbers.
class Operand {
 public:
  Operand(const char* name, int32_t dtype, int64_t rows, int64_t columns)
      : dtype_(dtype), columns_(columns), values_(golden_uni(name, size(rows, columns))) {
    if (dtype == DDH_F32) return;
    for (float& value : values_) {
      low_.push_back(dtype == DDH_BF16 ? ddh::Bf16::from_f32(value) : ddh::F16::from_f32(value));
      value = widened(dtype, low_.back());
    }
  }
  [[nodiscard]] const void* data() const {
    return dtype_ == DDH_F32 ? static_cast<const void*>(values_.data()) : low_.data();
  }
  [[nodiscard]] double at(int64_t row, int64_t column) const {
    return static_cast<double>(values_[static_cast<size_t>(row * columns_ + column)]);
  }

 private:
  int32_t dtype_;
  int64_t columns_;
  std::vector<float> values_;
  std::vector<uint16_t> low_;
};

// Memory for the result of a product, of any dtype.
class Place {
 public:
  Place(int32_t dtype, int64_t rows, int64_t columns) : dtype_(dtype), wide_(size(rows, columns)), low_(wide_.size()) {}
  ops::Result result() {
    if (dtype_ == DDH_F32) return wide_.data();
    return {low_.data(), dtype_};
  }
  [[nodiscard]] double at(size_t i) const {
    return static_cast<double>(dtype_ == DDH_F32 ? wide_[i] : widened(dtype_, low_[i]));
  }
  [[nodiscard]] size_t numel() const { return wide_.size(); }
  bool operator==(const Place&) const = default;

 private:
  int32_t dtype_;
  std::vector<float> wide_;
  std::vector<uint16_t> low_;
};

// The largest difference beyond `relative` of what is expected.
class Worst {
 public:
  explicit Worst(double relative) : relative_(relative) {}
  void see(double got, double expected) {
    const double difference = std::abs(got - expected) - relative_ * std::abs(expected);
    worst_ = std::max(worst_, std::isnan(difference) ? 1e30 : difference);
  }
  [[nodiscard]] double value() const { return worst_; }

 private:
  double relative_, worst_ = 0;
};

template <class Product>
double sum(int64_t n, Product&& product) {
  double total = 0;
  for (int64_t k = 0; k < n; ++k) total += product(k);
  return total;
}

struct Case {
  const ops::LinearShape s;
  const Operand x, w, dy, bias;
  Case(ops::LinearShape shape, int32_t dtype)
      : s(shape),
        x("x", dtype, s.rows, s.in),
        w("w", dtype, s.out, s.in),
        dy("dy", dtype, s.rows, s.out),
        bias("bias", dtype, 1, s.out) {}

  void see_forward(const Place& y, Worst& worst) const {
    for (size_t i = 0; i < y.numel(); ++i) {
      const auto r = static_cast<int64_t>(i) / s.out, o = static_cast<int64_t>(i) % s.out;
      worst.see(y.at(i), bias.at(0, o) + sum(s.in, [&](int64_t k) { return x.at(r, k) * w.at(o, k); }));
    }
  }
  void see_backward(const Place& dx, const std::vector<float>& dw, Worst& worst_dx, Worst& worst_dw) const {
    for (size_t i = 0; i < dx.numel(); ++i) {
      const auto r = static_cast<int64_t>(i) / s.in, c = static_cast<int64_t>(i) % s.in;
      worst_dx.see(dx.at(i), sum(s.out, [&](int64_t k) { return dy.at(r, k) * w.at(k, c); }));
    }
    for (size_t i = 0; i < dw.size(); ++i) {
      const auto o = static_cast<int64_t>(i) / s.in, c = static_cast<int64_t>(i) % s.in;
      worst_dw.see(static_cast<double>(dw[i]), sum(s.rows, [&](int64_t k) { return dy.at(k, o) * x.at(k, c); }));
    }
  }
};

}  // namespace

TEST_CASE("the products of a linear layer are right in every dtype, with odd sizes and a transposed forward") {
  const std::string name = GENERATE(from_range(ops::product_names()));
  const int32_t dtype = GENERATE(from_range(kDtypes));
  const bool into_fp32 = GENERATE(true, false);
  const ops::LinearShape s = GENERATE(ops::LinearShape{1, 5, 3}, ops::LinearShape{7, 33, 301},
                                      ops::LinearShape{300, 96, 130}, ops::LinearShape{66, 70, 600});
  CAPTURE(name, dtype, into_fp32, s.rows, s.in, s.out);
  const Case c(s, dtype);
  const int32_t to = into_fp32 ? DDH_F32 : dtype;
  Place y(to, s.rows, s.out), dx(to, s.rows, s.in);
  std::vector<float> dw(size(s.out, s.in));
  const auto products = ops::make_products(name, dtype);
  products->forward(s, c.x.data(), c.w.data(), c.bias.data(), y.result());
  products->backward_input(s, c.dy.data(), c.w.data(), dx.result());
  products->backward_weight(s, c.dy.data(), c.x.data(), dw.data(), false);

  // Sums are fp32, and rounded once where they go into 16 bits. ATen's bf16 rounds each product, then the sum with the bias
  // (at most 1): two roundings of values that may be larger by 1.
  const bool rounds = dtype == DDH_BF16 && name == "aten";
  const double u = roundoff(dtype), once = to == DDH_F32 && !rounds ? 0 : u;
  Worst worst_y(rounds ? 2 * u : once), worst_dx(once), worst_dw(rounds ? u : 0);
  c.see_forward(y, worst_y);
  c.see_backward(dx, dw, worst_dx, worst_dw);
  REQUIRE(worst_y.value() < (rounds ? 1.1 * u : 1e-4));
  REQUIRE(worst_dx.value() < 1e-4);
  REQUIRE(worst_dw.value() < 1e-4);

  // A bias-free forward, and the same bits at the next call.
  Place again(to, s.rows, s.out);
  products->forward(s, c.x.data(), c.w.data(), nullptr, again.result());
  REQUIRE(again.at(0) + c.bias.at(0, 0) == Approx(y.at(0)).epsilon(3 * u).margin(1e-5));
  products->forward(s, c.x.data(), c.w.data(), c.bias.data(), again.result());
  REQUIRE(again == y);
}

TEST_CASE("an added gradient is the complete product and one addition, bit for bit") {
  const std::string name = GENERATE(from_range(ops::product_names()));
  const int32_t dtype = GENERATE(from_range(kDtypes));
  const int64_t rows = GENERATE(16, 64, 256, 1024);
  const bool wide = GENERATE(false, true);
  CAPTURE(name, dtype, rows, wide);
  const Case c({rows, wide ? 384 : 128, wide ? 128 : 384}, dtype);
  const auto before = golden_uni("before", size(c.s.out, c.s.in), 30.0);
  const auto products = ops::make_products(name, dtype);
  std::vector<float> written(before.size()), added = before;
  products->backward_weight(c.s, c.dy.data(), c.x.data(), written.data(), false);
  products->backward_weight(c.s, c.dy.data(), c.x.data(), added.data(), true);
  std::vector<float> expected = before;
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += written[i];
  REQUIRE(added == expected);
}

TEST_CASE("the products of zero rows are empty, with a zero gradient") {
  const std::string name = GENERATE(from_range(ops::product_names()));
  const int32_t dtype = GENERATE(from_range(kDtypes));
  const ops::LinearShape s{0, 4, 3};
  const Operand w("w", dtype, 3, 4);
  std::vector<float> dw(12, 5.0F);
  float nothing = 7;
  const auto products = ops::make_products(name, dtype);
  products->forward(s, &nothing, w.data(), nullptr, &nothing);
  products->backward_input(s, &nothing, w.data(), &nothing);
  products->backward_weight(s, &nothing, &nothing, dw.data(), true);
  REQUIRE(dw == std::vector<float>(12, 5.0F));
  products->backward_weight(s, &nothing, &nothing, dw.data(), false);
  REQUIRE(dw == std::vector<float>(12, 0.0F));
  REQUIRE(nothing == 7);
}

// KGAT's groups of a relation have other numbers of rows in every batch.
TEST_CASE("a product has the same bits after products of very many shapes") {
  const std::string name = GENERATE(from_range(ops::product_names()));
  const int32_t dtype = GENERATE(DDH_F32, DDH_BF16);
  constexpr int64_t kMostRows = 800;
  const Case c({kMostRows, 8, 4}, dtype);
  const auto products = ops::make_products(name, dtype);
  const auto forward = [&](int64_t rows) {
    Place y(dtype, rows, 4);
    products->forward({rows, 8, 4}, c.x.data(), c.w.data(), c.bias.data(), y.result());
    return y;
  };
  const Place before = forward(7);
  for (int64_t rows = 1; rows <= kMostRows; ++rows) forward(rows);
  CHECK(forward(7) == before);
}

namespace {

// The result of `compute` with 1, 2 and 3 threads.
template <class Compute>
void check_threads(const Compute& compute) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const auto expected = compute();
  for (const int threads : {2, 3}) {
    omp_set_num_threads(threads);
    CAPTURE(threads);
    CHECK(compute() == expected);
  }
  omp_set_num_threads(before);
}

}  // namespace

TEST_CASE("the number of threads changes no bit of a product") {
  const std::string name = GENERATE(from_range(ops::product_names()));
  const int32_t dtype = GENERATE(from_range(kDtypes));
  // Shapes for which the libraries' own threads do.
  const ops::LinearShape s = GENERATE(ops::LinearShape{64, 768, 2304}, ops::LinearShape{64, 3072, 768},
                                      ops::LinearShape{2048, 16, 64}, ops::LinearShape{24, 32, 96});
  CAPTURE(name, dtype, s.rows, s.in, s.out);
  const Case c(s, dtype);
  check_threads([&] {
    const auto products = ops::make_products(name, dtype);
    Place y(dtype, s.rows, s.out), dx(dtype, s.rows, s.in);
    std::vector<float> dw(size(s.out, s.in));
    products->forward(s, c.x.data(), c.w.data(), c.bias.data(), y.result());
    products->backward_input(s, c.dy.data(), c.w.data(), dx.result());
    products->backward_weight(s, c.dy.data(), c.x.data(), dw.data(), false);
    return std::tuple(y, dx, dw);
  });
}

TEST_CASE("sums over rows are right, and the number of threads changes no bit of them") {
  const int64_t rows = GENERATE(1, 63, 64, 300), columns = GENERATE(1, 130, 768);
  CAPTURE(rows, columns);
  const auto dy = golden_uni("dy", size(rows, columns)), x = golden_uni("x", size(rows, columns));
  const auto mean = golden_uni("mean", static_cast<size_t>(rows)), rstd = golden_uni("rstd", static_cast<size_t>(rows));
  const auto compute = [&] {
    std::vector<float> sums(static_cast<size_t>(columns)), d_weight(sums.size()), d_bias(sums.size());
    ops::column_sums(dy.data(), rows, columns, sums.data());
    ops::layer_norm_weight_backward({dy.data(), x.data(), mean.data(), rstd.data(), rows, columns}, d_weight.data(),
                                    d_bias.data());
    return std::tuple(sums, d_weight, d_bias);
  };
  check_threads(compute);
  const auto [sums, d_weight, d_bias] = compute();
  CHECK(d_bias == sums);
  for (size_t c = 0; c < sums.size(); ++c) {
    double sum = 0, weighted = 0;
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
      const size_t i = r * static_cast<size_t>(columns) + c;
      const auto d = static_cast<double>(dy[i]);
      sum += d;
      weighted += d * (static_cast<double>(x[i]) - static_cast<double>(mean[r])) * static_cast<double>(rstd[r]);
    }
    REQUIRE(static_cast<double>(sums[c]) == Approx(sum).margin(1e-4));
    REQUIRE(static_cast<double>(d_weight[c]) == Approx(weighted).margin(1e-4));
  }
}

TEST_CASE("the choice of a library depends on processor, dtype and shape, and needs no measurement") {
  const ops::LinearShape s{64, 768, 3072};
  const ops::Processor intel{"GenuineIntel", true, true, false}, native{"GenuineIntel", true, true, true},
      arm{"", false, false, false};
  const std::vector<std::string> built = ops::product_names();
  const bool has_onednn = std::find(built.begin(), built.end(), "onednn") != built.end();
  CHECK(ops::chosen_products(s, DDH_F32, intel) == (has_onednn ? "onednn_gemm" : "aten"));
  CHECK(ops::chosen_products({768, 128, 512}, DDH_F32, intel) == (has_onednn ? "onednn" : "aten"));
  CHECK(ops::chosen_products(s, DDH_BF16, native) == (has_onednn ? "onednn" : "aten"));
  CHECK(ops::chosen_products(s, DDH_BF16, intel) == ops::chosen_products(s, DDH_F32, intel));  // widened
  CHECK(ops::chosen_products(s, DDH_F16, native) == ops::chosen_products(s, DDH_F32, native));
  CHECK(ops::chosen_products(s, DDH_F32, arm) == "aten");
}
