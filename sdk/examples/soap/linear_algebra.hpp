// SPDX-License-Identifier: Apache-2.0
//
// sdk/examples/soap/linear_algebra.hpp: products and the QR decomposition of row-major fp32 matrices. Every sum has one
// order, so the bits do not depend on the width of vectors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ddh/sdk/kernels/simd.hpp"

namespace soap DDH_HIDDEN {

// y += a x
struct AddScaled {
  DDH_SIMD_BODY void run(float* y, const float* x, float a, uint64_t n) {
    DDH_SIMD_LOOP
    for (uint64_t i = 0; i < n; ++i) y[i] += a * x[i];
  }
};
inline void add_scaled(float* y, const float* x, float a, uint64_t n) { ddh::Kernel<AddScaled>::run(y, x, a, n); }

// Row i of c [rows, columns] += sum over k of a(i, k) row k of b. Four rows of b at a time.
struct AddRows {
  DDH_SIMD_BODY void run(float* c, const float* b, uint64_t b_stride, const float* a, uint64_t a_stride, uint64_t inner,
                         uint64_t columns) {
    uint64_t k = 0;
    for (; k + 4 <= inner; k += 4) {
      const float a0 = a[k * a_stride], a1 = a[(k + 1) * a_stride], a2 = a[(k + 2) * a_stride],
                  a3 = a[(k + 3) * a_stride];
      const float *b0 = b + k * b_stride, *b1 = b0 + b_stride, *b2 = b1 + b_stride, *b3 = b2 + b_stride;
      DDH_SIMD_LOOP
      for (uint64_t j = 0; j < columns; ++j) c[j] += (a0 * b0[j] + a1 * b1[j]) + (a2 * b2[j] + a3 * b3[j]);
    }
    for (; k < inner; ++k) {
      const float a0 = a[k * a_stride];
      const float* const b0 = b + k * b_stride;
      DDH_SIMD_LOOP
      for (uint64_t j = 0; j < columns; ++j) c[j] += a0 * b0[j];
    }
  }
};

// c [m, n] = a b, with a [m, k] and b [k, n].
inline void multiply(float* c, const float* a, const float* b, uint64_t m, uint64_t k, uint64_t n) {
  std::fill(c, c + m * n, 0.0f);
  for (uint64_t i = 0; i < m; ++i) ddh::Kernel<AddRows>::run(c + i * n, b, n, a + i * k, 1, k, n);
}
// c [m, n] = a^T b, with a [k, m] and b [k, n].
inline void multiply_transposed(float* c, const float* a, const float* b, uint64_t m, uint64_t k, uint64_t n) {
  std::fill(c, c + m * n, 0.0f);
  for (uint64_t i = 0; i < m; ++i) ddh::Kernel<AddRows>::run(c + i * n, b, n, a + i, m, k, n);
}
// to [columns, rows] = from^T.
inline void transpose(float* to, const float* from, uint64_t rows, uint64_t columns) {
  for (uint64_t i = 0; i < rows; ++i)
    for (uint64_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
}

// Replaces the rows of `a` [n, n] by an orthonormal basis of their spans: row i spans, with the rows before it, what rows 0 to
// i did. That is Q^T of the QR decomposition of a^T, by Householder reflections. `work`: n (n + 2)
// floats.
inline void orthonormalize_rows(float* a, uint64_t n, float* work) {
  float* const v = work;  // row k: the reflection k, from element k on
  float* const tau = work + n * n;
  float* const signs = tau + n;
  for (uint64_t k = 0; k < n; ++k) {
    float* const row = a + k * n;
    for (uint64_t r = 0; r < k; ++r) {  // the reflections so far
      double dot = 0;
      for (uint64_t j = r; j < n; ++j) dot += static_cast<double>(v[r * n + j]) * row[j];
      add_scaled(row + r, v + r * n + r, -tau[r] * static_cast<float>(dot), n - r);
    }
    double squares = 0;
    for (uint64_t j = k; j < n; ++j) squares += static_cast<double>(row[j]) * row[j];
    const auto length = static_cast<float>(std::sqrt(squares));
    std::copy(row + k, row + n, v + k * n + k);
    tau[k] = 0;
    if (length == 0) continue;
    v[k * n + k] += row[k] < 0 ? -length : length;
    tau[k] = 1.0f / (length * (length + std::fabs(row[k])));
  }
  // Row k of Q^T: e_k through the reflections, from the last to the first. Its sign is that of the row's own direction.
  for (uint64_t k = 0; k < n; ++k) signs[k] = tau[k] != 0 && v[k * n + k] > 0 ? -1.0f : 1.0f;
  for (uint64_t k = 0; k < n; ++k) {
    float* const row = a + k * n;
    std::fill(row, row + n, 0.0f);
    row[k] = signs[k];
    for (uint64_t r = k + 1; r-- > 0;) {
      double dot = 0;
      for (uint64_t j = r; j < n; ++j) dot += static_cast<double>(v[r * n + j]) * row[j];
      add_scaled(row + r, v + r * n + r, -tau[r] * static_cast<float>(dot), n - r);
    }
  }
}

}  // namespace DDH_HIDDEN
