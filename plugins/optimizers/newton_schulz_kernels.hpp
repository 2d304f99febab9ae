// SPDX-License-Identifier: Apache-2.0
//
// plugins/optimizers/newton_schulz_kernels.hpp: the iteration of newton_schulz.hpp as kernels of a GPU, with the same bits:
// every element is summed over increasing k, with one rounding per operation. A thread computes a tile of 4 x 4 elements
// from rows that it loads in quads; threads share no memory, so the products are limited by the first-level cache.
#pragma once

#include <utility>

#include "ddh/sdk/kernels/device_kernel.hpp"
#include "newton_schulz_shape.hpp"

namespace newton_schulz DDH_HIDDEN {

inline constexpr uint32_t kTile = 4;

inline constexpr uint64_t tiles(uint64_t n) { return (n + kTile - 1) / kTile; }
inline constexpr uint64_t length_parts(uint64_t numel) { return (numel + kLengthPart - 1) / kLengthPart; }

// sums[part][lane] = sums of squares of `x`; one thread for each.
struct LengthSums {
  static constexpr const char* kKernel = "muon_length_sums";
  const float* x;
  uint64_t numel;
  double* sums;
  [[nodiscard]] uint64_t work() const { return length_parts(numel) * kLengthLanes; }

  DDH_SIMD_INLINE void operator()(const ddh::GridPlace& at) const {
    const uint64_t count = length_parts(numel) * kLengthLanes;
    for (uint64_t s = at.first(); s < count; s += at.stride()) {
      const uint64_t begin = s / kLengthLanes * kLengthPart;
      const uint64_t end = numel - begin < kLengthPart ? numel : begin + kLengthPart;
      double sum = 0;
      for (uint64_t i = begin + s % kLengthLanes; i < end; i += kLengthLanes)
        sum = sum + static_cast<double>(x[i]) * static_cast<double>(x[i]);
      sums[s] = sum;
    }
  }
};

// scale[0] = what the matrix is multiplied with; by one thread.
struct LengthScale {
  static constexpr const char* kKernel = "muon_length_scale";
  const double* sums;
  uint64_t parts;
  double eps;
  float* scale;
  [[nodiscard]] static uint64_t work() { return 1; }

  DDH_SIMD_INLINE void operator()(const ddh::GridPlace& at) const {
    if (at.first() != 0) return;
    double total = 0;
    for (uint64_t part = 0; part < parts; ++part) total = total + total_of(sums + part * kLengthLanes);
    scale[0] = scale_of(std::sqrt(total), eps);
  }
};

// x = scale g, transposed if it has more rows than columns, with zeros behind each row.
struct Normalize {
  static constexpr const char* kKernel = "muon_normalize";
  float* x;
  const float* g;
  const float* scale;
  Shape shape;
  [[nodiscard]] uint64_t work() const { return shape.small() * padded(shape.large()); }

  DDH_SIMD_INLINE void operator()(const ddh::GridPlace& at) const {
    const uint64_t n = shape.large(), stride = padded(n), count = shape.small() * stride;
    for (uint64_t e = at.first(); e < count; e += at.stride()) {
      const uint64_t i = e / stride, j = e % stride;
      x[e] = j < n ? scale[0] * g[shape.place(i, j)] : 0.0F;
    }
  }
};

// Adjacent elements, loaded at once.
struct alignas(kTile * sizeof(float)) Quad {
  float v[kTile];
};
DDH_SIMD_INLINE Quad quad_at(const float* p) { return *reinterpret_cast<const Quad*>(p); }

// out = x x^T, or out = b x + c x x^T where `combines` (then x is square and symmetric). The lower half, mirrored.
struct Gram {
  static constexpr const char* kKernel = "muon_gram";
  const float* x;  // rows x depth
  uint64_t stride, rows, depth;
  float* out;  // rows x rows, rows of padded(rows)
  float b, c;
  uint32_t combines;
  [[nodiscard]] uint64_t work() const { return tiles(rows) * tiles(rows); }

  // A row of the tile; the last one again where the matrix has ended.
  [[nodiscard]] DDH_SIMD_INLINE const float* row(uint64_t i) const { return x + (i < rows ? i : rows - 1) * stride; }
  DDH_SIMD_INLINE void store(uint64_t i, uint64_t j, float sum) const {
    if (i >= rows || j > i) return;
    const float value = combines != 0 ? b * x[i * stride + j] + c * sum : sum;
    out[i * padded(rows) + j] = value;
    out[j * padded(rows) + i] = value;
  }
  DDH_SIMD_INLINE void operator()(const ddh::GridPlace& at) const {
    const uint64_t side = tiles(rows);
    for (uint64_t tile = at.first(); tile < side * side; tile += at.stride()) {
      const uint64_t i0 = tile / side * kTile, j0 = tile % side * kTile;
      if (j0 > i0) continue;
      const float *p[kTile], *q[kTile];
      for (uint32_t r = 0; r < kTile; ++r) p[r] = row(i0 + r), q[r] = row(j0 + r);
      float sum[kTile][kTile] = {};
      uint64_t k = 0;
      for (; k + kTile <= depth; k += kTile) {
        Quad a[kTile], d[kTile];
        for (uint32_t r = 0; r < kTile; ++r) a[r] = quad_at(p[r] + k), d[r] = quad_at(q[r] + k);
        for (uint32_t u = 0; u < kTile; ++u)
          for (uint32_t r = 0; r < kTile; ++r)
            for (uint32_t s = 0; s < kTile; ++s) sum[r][s] = sum[r][s] + a[r].v[u] * d[s].v[u];
      }
      for (; k < depth; ++k)
        for (uint32_t r = 0; r < kTile; ++r)
          for (uint32_t s = 0; s < kTile; ++s) sum[r][s] = sum[r][s] + p[r][k] * q[s][k];
      for (uint32_t r = 0; r < kTile; ++r)
        for (uint32_t s = 0; s < kTile; ++s) store(i0 + r, j0 + s, sum[r][s]);
    }
  }
};

// out = a x + b x, for a number a and a square matrix b.
struct Product {
  static constexpr const char* kKernel = "muon_product";
  const float* b;  // rows x rows, rows of padded(rows)
  const float* x;  // rows x stride
  uint64_t rows, stride;
  float* out;  // rows x stride
  float a;
  [[nodiscard]] uint64_t work() const { return tiles(rows) * (stride / kTile); }

  DDH_SIMD_INLINE void operator()(const ddh::GridPlace& at) const {
    const uint64_t across = stride / kTile, count = tiles(rows) * across;
    for (uint64_t tile = at.first(); tile < count; tile += at.stride()) {
      const uint64_t i0 = tile / across * kTile, j0 = tile % across * kTile;
      const float* left[kTile];
      float sum[kTile][kTile];
      for (uint32_t r = 0; r < kTile; ++r) {
        const uint64_t i = i0 + r < rows ? i0 + r : rows - 1;
        left[r] = b + i * padded(rows);
        const Quad own = quad_at(x + i * stride + j0);
        for (uint32_t s = 0; s < kTile; ++s) sum[r][s] = a * own.v[s];
      }
      uint64_t k = 0;
      for (; k + kTile <= rows; k += kTile) {
        Quad l[kTile];
        for (uint32_t r = 0; r < kTile; ++r) l[r] = quad_at(left[r] + k);
        for (uint32_t u = 0; u < kTile; ++u) {
          const Quad right = quad_at(x + (k + u) * stride + j0);
          for (uint32_t r = 0; r < kTile; ++r)
            for (uint32_t s = 0; s < kTile; ++s) sum[r][s] = sum[r][s] + l[r].v[u] * right.v[s];
        }
      }
      for (; k < rows; ++k) {
        const Quad right = quad_at(x + k * stride + j0);
        for (uint32_t r = 0; r < kTile; ++r)
          for (uint32_t s = 0; s < kTile; ++s) sum[r][s] = sum[r][s] + left[r][k] * right.v[s];
      }
      for (uint32_t r = 0; r < kTile && i0 + r < rows; ++r)
        for (uint32_t s = 0; s < kTile; ++s) out[(i0 + r) * stride + j0 + s] = sum[r][s];
    }
  }
};

// g = x, as Normalize took it.
struct Unpack {
  static constexpr const char* kKernel = "muon_unpack";
  float* g;
  const float* x;
  Shape shape;
  [[nodiscard]] uint64_t work() const { return shape.rows * shape.columns; }

  DDH_SIMD_INLINE void operator()(const ddh::GridPlace& at) const {
    const uint64_t n = shape.large(), count = shape.small() * n;
    for (uint64_t e = at.first(); e < count; e += at.stride()) {
      const uint64_t i = e / n, j = e % n;
      g[shape.place(i, j)] = x[i * padded(n) + j];
    }
  }
};

// orthogonalize of newton_schulz.hpp: calls launch(kernel) for each kernel, in order. `scratch` is memory of the device.
template <class Launch>
void orthogonalize_by_kernels(float* g, Shape shape, Coefficients coefficients, int64_t steps, double eps,
                              float* scratch, Launch&& launch) {
  const uint64_t m = shape.small(), n = shape.large(), stride = padded(n);
  float* x = scratch;
  float* next = x + m * stride;
  float* const a = next + m * stride;
  float* const combined = a + m * padded(m);
  auto* const sums = reinterpret_cast<double*>(next);  // next and a are not used before the first step
  launch(LengthSums{g, m * n, sums});
  launch(LengthScale{sums, length_parts(m * n), eps, a});
  launch(Normalize{x, g, a, shape});
  for (int64_t step = 0; step < steps; ++step) {
    launch(Gram{x, stride, m, n, a, 0, 0, 0});
    launch(Gram{a, padded(m), m, m, combined, coefficients.b, coefficients.c, 1});  // A is symmetric: A^2 = A A^T
    launch(Product{combined, x, m, stride, next, coefficients.a});
    std::swap(x, next);
  }
  launch(Unpack{g, x, shape});
}

}  // namespace DDH_HIDDEN
