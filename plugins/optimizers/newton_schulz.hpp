// SPDX-License-Identifier: Apache-2.0
//
// plugins/optimizers/newton_schulz.hpp: an approximation of the nearest orthogonal matrix, by a quintic Newton-Schulz
// iteration (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"):
//
//   X = G / |G|          then, several times            A = X X^T,   X = a X + (b A + c A^2) X
//
// A matrix with more rows than columns is transposed first, so that A is the smaller of the two products. It uses fp32
// and sums each element over increasing k with one rounding per operation, so the result does not depend on the rank or
// its vector width. A step takes about 3 m^2 n + m^3 operations for m x n with m <= n.
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "newton_schulz_shape.hpp"

namespace newton_schulz DDH_HIDDEN {

namespace detail {

using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

// c[r][0..kLanes) += sum over rising k of a[r][k] * panel[k][0..kLanes), for kRows rows.
template <int kRows>
struct AddTile {
  DDH_SIMD_BODY void run(const float* a, uint64_t a_stride, const float* panel, uint64_t depth, float* c,
                         uint64_t c_stride) {
    Lanes sum[kRows];
    for (int r = 0; r < kRows; ++r) std::memcpy(&sum[r], c + static_cast<uint64_t>(r) * c_stride, sizeof(Lanes));
    for (uint64_t k = 0; k < depth; ++k) {
      Lanes b;
      std::memcpy(&b, panel + k * kLanes, sizeof b);
      for (int r = 0; r < kRows; ++r) sum[r] += a[static_cast<uint64_t>(r) * a_stride + k] * b;
    }
    for (int r = 0; r < kRows; ++r) std::memcpy(c + static_cast<uint64_t>(r) * c_stride, &sum[r], sizeof(Lanes));
  }
};

// dst = a x + b y, element-wise.
struct Combine {
  DDH_SIMD_BODY void run(float* dst, float a, const float* x, float b, const float* y, uint64_t numel) {
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) dst[i] = a * x[i] + b * y[i];
  }
};
struct Scale {
  DDH_SIMD_BODY void run(float* dst, float a, const float* x, uint64_t numel) {
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < numel; ++i) dst[i] = a * x[i];
  }
};

// Rows [begin, end) of a kLanes wide strip of c += a times a panel. Processes the number of rows that fit the
// registers.
inline void add_strip(const float* a, uint64_t a_stride, const float* panel, uint64_t depth, float* c,
                      uint64_t c_stride, uint64_t begin, uint64_t end) {
  const uint64_t step = ddh::simd_level() == ddh::SimdLevel::avx512 ? 8 : 4;
  uint64_t i = begin;
  for (; i + step <= end; i += step) {
    if (step == 8)
      ddh::Kernel<AddTile<8>>::run(a + i * a_stride, a_stride, panel, depth, c + i * c_stride, c_stride);
    else
      ddh::Kernel<AddTile<4>>::run(a + i * a_stride, a_stride, panel, depth, c + i * c_stride, c_stride);
  }
  for (; i < end; ++i)
    ddh::Kernel<AddTile<1>>::run(a + i * a_stride, a_stride, panel, depth, c + i * c_stride, c_stride);
}

// out = x x^T for x of rows x depth: its lower half, mirrored.
inline void gram(const float* x, uint64_t stride, uint64_t rows, uint64_t depth, float* out, float* panel) {
  const uint64_t out_stride = padded(rows);
  std::memset(out, 0, rows * out_stride * sizeof(float));
  for (uint64_t k0 = 0; k0 < depth; k0 += kDepth) {
    const uint64_t n = depth - k0 < kDepth ? depth - k0 : kDepth;
    for (uint64_t j0 = 0; j0 < rows; j0 += kLanes) {
      for (uint64_t j = 0; j < kLanes; ++j)
        for (uint64_t k = 0; k < n; ++k) panel[k * kLanes + j] = j0 + j < rows ? x[(j0 + j) * stride + k0 + k] : 0.0f;
      add_strip(x + k0, stride, panel, n, out + j0, out_stride, j0, rows);
    }
  }
  for (uint64_t i = 0; i < rows; ++i)
    for (uint64_t j = i + 1; j < rows; ++j) out[i * out_stride + j] = out[j * out_stride + i];
}

// out += b x for a square b and x of rows x columns.
inline void add_product(const float* b, uint64_t rows, const float* x, uint64_t stride, float* out, float* panel) {
  const uint64_t b_stride = padded(rows);
  for (uint64_t k0 = 0; k0 < rows; k0 += kDepth) {
    const uint64_t n = rows - k0 < kDepth ? rows - k0 : kDepth;
    for (uint64_t j0 = 0; j0 < stride; j0 += kLanes) {
      for (uint64_t k = 0; k < n; ++k)
        std::memcpy(panel + k * kLanes, x + (k0 + k) * stride + j0, kLanes * sizeof(float));
      add_strip(b + k0, b_stride, panel, n, out + j0, stride, 0, rows);
    }
  }
}

// The root of the sum of squares, in double: in each part, element i is added to sum i % kLengthLanes; then the sums of
// each part in order, then the parts.
inline double length(const float* x, uint64_t numel) {
  double total = 0;
  for (uint64_t begin = 0; begin < numel; begin += kLengthPart) {
    const uint64_t n = numel - begin < kLengthPart ? numel - begin : kLengthPart;
    std::array<double, kLengthLanes> sums{};
    for (uint64_t i = 0; i < n; ++i)
      sums[i % kLengthLanes] += static_cast<double>(x[begin + i]) * static_cast<double>(x[begin + i]);
    total += total_of(sums.data());
  }
  return std::sqrt(total);
}

}  // namespace detail

// The matrix `g` of the shape, without padding, is replaced by its orthogonalization. `scratch` holds scratch_numel
// floats. A matrix with a norm below `eps` is divided by eps.
inline void orthogonalize(float* g, Shape shape, Coefficients coefficients, int64_t steps, double eps, float* scratch) {
  const uint64_t m = shape.small(), n = shape.large(), stride = padded(n);
  float* x = scratch;
  float* next = x + m * stride;
  float* const a = next + m * stride;
  float* const a2 = a + m * padded(m);
  float* const panel = a2 + m * padded(m);

  const float scale = scale_of(detail::length(g, m * n), eps);
  for (uint64_t i = 0; i < m; ++i)
    for (uint64_t j = 0; j < stride; ++j) x[i * stride + j] = j < n ? scale * g[shape.place(i, j)] : 0.0f;
  for (int64_t step = 0; step < steps; ++step) {
    detail::gram(x, stride, m, n, a, panel);
    detail::gram(a, padded(m), m, m, a2, panel);  // A is symmetric, so A^2 = A A^T
    ddh::Kernel<detail::Combine>::run(a, coefficients.b, a, coefficients.c, a2, m * padded(m));
    ddh::Kernel<detail::Scale>::run(next, coefficients.a, x, m * stride);
    detail::add_product(a, m, x, stride, next, panel);
    std::swap(x, next);
  }
  for (uint64_t i = 0; i < m; ++i)
    for (uint64_t j = 0; j < n; ++j) g[shape.place(i, j)] = x[i * stride + j];
}

}  // namespace DDH_HIDDEN
