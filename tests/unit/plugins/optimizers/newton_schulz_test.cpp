// SPDX-License-Identifier: Apache-2.0
//
// The matrix products and the iteration behind muon: against products in double, over sizes around the tiles and panels,
// and at every vector width of the processor.
#include "../plugins/optimizers/newton_schulz.hpp"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

namespace ns = newton_schulz;

namespace {

using Matrix = std::vector<float>;

// rows x columns with a stride; zeros behind the columns.
Matrix random_matrix(uint64_t rows, uint64_t columns, uint64_t stride, uint32_t seed) {
  std::mt19937 random(seed);
  Matrix m(rows * stride, 0.0f);
  for (uint64_t i = 0; i < rows; ++i)
    for (uint64_t j = 0; j < columns; ++j)
      m[i * stride + j] = std::ldexp(static_cast<float>(random() >> 8), -24) - 0.5f;
  return m;
}

// How far X X^T is from the unit matrix, for the smaller side: the largest element.
double distance_from_orthogonal(const Matrix& x, uint64_t rows, uint64_t columns) {
  const bool tall = rows > columns;
  const uint64_t m = tall ? columns : rows, n = tall ? rows : columns;
  const auto at = [&](uint64_t i, uint64_t k) {
    return static_cast<double>(tall ? x[k * columns + i] : x[i * columns + k]);
  };
  double worst = 0;
  for (uint64_t i = 0; i < m; ++i)
    for (uint64_t j = 0; j < m; ++j) {
      double sum = i == j ? -1 : 0;
      for (uint64_t k = 0; k < n; ++k) sum += at(i, k) * at(j, k);
      worst = std::max(worst, std::abs(sum));
    }
  return worst;
}

}  // namespace

TEST_CASE("x times its transpose is right and symmetric for sizes around tiles and panels") {
  Matrix panel(ns::kDepth * ns::kLanes);
  for (const uint64_t rows : {1u, 3u, 8u, 15u, 17u, 40u})
    for (const uint64_t depth : {1u, 16u, 255u, 257u, 530u}) {
      INFO(rows << " x " << depth);
      const uint64_t stride = ns::padded(depth), out_stride = ns::padded(rows);
      const Matrix x = random_matrix(rows, depth, stride, 1);
      Matrix out(rows * out_stride, 7.0f);
      ns::detail::gram(x.data(), stride, rows, depth, out.data(), panel.data());
      for (uint64_t i = 0; i < rows; ++i)
        for (uint64_t j = 0; j < out_stride; ++j) {
          double sum = 0;
          for (uint64_t k = 0; j < rows && k < depth; ++k)
            sum += static_cast<double>(x[i * stride + k]) * static_cast<double>(x[j * stride + k]);
          REQUIRE(out[i * out_stride + j] == Approx(sum).margin(2e-5));
          if (j < rows) REQUIRE(out[i * out_stride + j] == out[j * out_stride + i]);
        }
    }
}

TEST_CASE("a product is added to what is there, each element over rising k") {
  Matrix panel(ns::kDepth * ns::kLanes);
  for (const uint64_t rows : {1u, 5u, 16u, 270u})
    for (const uint64_t columns : {1u, 16u, 33u}) {
      INFO(rows << " x " << columns);
      const uint64_t stride = ns::padded(columns), b_stride = ns::padded(rows);
      const Matrix b = random_matrix(rows, rows, b_stride, 2), x = random_matrix(rows, columns, stride, 3);
      const Matrix before = random_matrix(rows, columns, stride, 4);
      Matrix out = before;
      ns::detail::add_product(b.data(), rows, x.data(), stride, out.data(), panel.data());
      for (uint64_t i = 0; i < rows; ++i)
        for (uint64_t j = 0; j < columns; ++j) {
          float sum = before[i * stride + j];
          for (uint64_t k = 0; k < rows; ++k) sum += b[i * b_stride + k] * x[k * stride + j];
          REQUIRE(out[i * stride + j] == sum);
        }
    }
}

TEST_CASE("a tile has the same bits at every vector width") {
  const Matrix a = random_matrix(8, 100, 100, 5), panel = random_matrix(100, ns::kLanes, ns::kLanes, 6);
  const auto run = [&](auto kernel) {
    Matrix c = random_matrix(8, ns::kLanes, ns::kLanes, 7);
    kernel(a.data(), uint64_t{100}, panel.data(), uint64_t{100}, c.data(), ns::kLanes);
    return c;
  };
  using Tile = ddh::Kernel<ns::detail::AddTile<8>>;
  const Matrix base = run(Tile::at(ddh::SimdLevel::base));
  for (int32_t level = 1; level <= static_cast<int32_t>(ddh::simd_level()); ++level)
    CHECK(run(Tile::at(static_cast<ddh::SimdLevel>(level))) == base);
}

TEST_CASE("the iteration brings all singular values near 1, wide or tall") {
  for (const ns::Shape shape : {ns::Shape{1, 1}, {1, 50}, {50, 1}, {20, 33}, {33, 20}, {24, 24}}) {
    INFO(shape.rows << " x " << shape.columns);
    Matrix g = random_matrix(shape.rows, shape.columns, shape.columns, 8);
    Matrix scratch(ns::scratch_numel(shape.small(), shape.large()));
    // The published coefficients leave singular values between 0.7 and 1.2; these converge to 1.
    ns::orthogonalize(g.data(), shape, {1.875f, -1.25f, 0.375f}, 40, 1e-7, scratch.data());
    CHECK(distance_from_orthogonal(g, shape.rows, shape.columns) < 1e-5);
  }
}

TEST_CASE("a matrix and its transpose have the same orthogonalization, and zero stays zero") {
  const uint64_t rows = 13, columns = 21;
  Matrix g = random_matrix(rows, columns, columns, 9), t(g.size());
  for (uint64_t i = 0; i < rows; ++i)
    for (uint64_t j = 0; j < columns; ++j) t[j * rows + i] = g[i * columns + j];
  Matrix scratch(ns::scratch_numel(rows, columns));
  const ns::Coefficients published{3.4445f, -4.7750f, 2.0315f};
  ns::orthogonalize(g.data(), {rows, columns}, published, 5, 1e-7, scratch.data());
  ns::orthogonalize(t.data(), {columns, rows}, published, 5, 1e-7, scratch.data());
  for (uint64_t i = 0; i < rows; ++i)
    for (uint64_t j = 0; j < columns; ++j) CHECK(t[j * rows + i] == Approx(g[i * columns + j]).margin(1e-5));
  CHECK(distance_from_orthogonal(g, rows, columns) < 0.6);
  Matrix zero(g.size(), 0.0f);
  ns::orthogonalize(zero.data(), {rows, columns}, published, 5, 1e-7, scratch.data());
  CHECK(zero == Matrix(g.size(), 0.0f));
}
