// SPDX-License-Identifier: Apache-2.0
#include "attention_kernels.hpp"

#include <algorithm>
#include <limits>

#include "exponential.hpp"
#include "fused_kernel.hpp"
#include "transpose.hpp"

namespace ops {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kQueries = 32;  // of a block

using Lanes = float __attribute__((vector_size(64), aligned(4), may_alias));

DDH_SIMD_INLINE int64_t padded(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }
DDH_SIMD_INLINE const Lanes& lanes(const float* p) { return *reinterpret_cast<const Lanes*>(p); }
DDH_SIMD_INLINE Lanes& lanes(float* p) { return *reinterpret_cast<Lanes*>(p); }

// A factor of a product: element (i, k) is data[i * row + k * column].
struct Factor {
  const float* data;
  int64_t row, column;
};

// c (kRows, kVectors lanes) = or += sum over k in [first, end) of a(i, k) b[k * b_row + ...].
template <int kRows, int kVectors, bool kAdds>
DDH_SIMD_INLINE void tile(const Factor& a, const float* b, int64_t b_row, int64_t first, int64_t end, float* c,
                          int64_t c_row) {
  Lanes sums[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) sums[i][v] = kAdds ? lanes(c + i * c_row + v * kLanes) : Lanes{};
  }
  for (int64_t k = first; k < end; ++k) {
    Lanes of_b[kVectors];
    for (int v = 0; v < kVectors; ++v) of_b[v] = lanes(b + k * b_row + v * kLanes);
    for (int i = 0; i < kRows; ++i) {
      const float of_a = a.data[i * a.row + k * a.column];
      for (int v = 0; v < kVectors; ++v) sums[i][v] += of_a * of_b[v];
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int v = 0; v < kVectors; ++v) lanes(c + i * c_row + v * kLanes) = sums[i][v];
  }
}

template <int kRows, bool kAdds>
DDH_SIMD_INLINE void row_of_tiles(const Factor& a, const float* b, int64_t b_row, int64_t first, int64_t end, float* c,
                                  int64_t c_row, int64_t columns) {
  int64_t n = 0;
  for (; n + 4 * kLanes <= columns; n += 4 * kLanes) tile<kRows, 4, kAdds>(a, b + n, b_row, first, end, c + n, c_row);
  for (; n + 2 * kLanes <= columns; n += 2 * kLanes) tile<kRows, 2, kAdds>(a, b + n, b_row, first, end, c + n, c_row);
  for (; n < columns; n += kLanes) tile<kRows, 1, kAdds>(a, b + n, b_row, first, end, c + n, c_row);
}

// c (rows, columns) = or += a b over k in [first, end); columns are whole lanes.
template <bool kAdds>
DDH_SIMD_INLINE void product(Factor a, const float* b, int64_t b_row, int64_t first, int64_t end, float* c,
                             int64_t c_row, int64_t rows, int64_t columns) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4, a.data += 4 * a.row, c += 4 * c_row)
    row_of_tiles<4, kAdds>(a, b, b_row, first, end, c, c_row, columns);
  for (; i < rows; ++i, a.data += a.row, c += c_row) row_of_tiles<1, kAdds>(a, b, b_row, first, end, c, c_row, columns);
}

// (T, D) -> (T, padded D), zeros behind.
DDH_SIMD_INLINE void copy_rows(HeadRows from, const HeadShape& s, float* to) {
  const int64_t width = padded(s.D);
  for (int64_t t = 0; t < s.T; ++t, to += width) {
    for (int64_t d = 0; d < s.D; ++d) to[d] = from.data[t * from.stride + d];
    for (int64_t d = s.D; d < width; ++d) to[d] = 0;
  }
}
// (T, D) -> (D, padded T), zeros behind.
DDH_SIMD_INLINE void transpose(HeadRows from, const HeadShape& s, float* to) {
  const int64_t width = padded(s.T), rows = s.T / 4 * 4, columns = s.D / 4 * 4;
  for (int64_t t = 0; t < rows; t += 4) {
    for (int64_t d = 0; d < columns; d += 4) {
      FourFloats v[4];
      for (int i = 0; i < 4; ++i) v[i] = *reinterpret_cast<const FourFloats*>(from.data + (t + i) * from.stride + d);
      transpose_4x4(v);
      for (int i = 0; i < 4; ++i) *reinterpret_cast<FourFloats*>(to + (d + i) * width + t) = v[i];
    }
  }
  for (int64_t t = 0; t < s.T; ++t) {
    for (int64_t d = t < rows ? columns : 0; d < s.D; ++d) to[d * width + t] = from.data[t * from.stride + d];
  }
  for (int64_t d = 0; d < s.D; ++d) {
    for (int64_t t = s.T; t < width; ++t) to[d * width + t] = 0;
  }
}
DDH_SIMD_INLINE void give_rows(const float* from, const HeadShape& s, int64_t first, int64_t rows, float factor,
                               HeadResult to) {
  const int64_t width = padded(s.D);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t d = 0; d < s.D; ++d) to.data[(first + r) * to.stride + d] = from[r * width + d] * factor;
  }
}

DDH_SIMD_INLINE void exponentiate(Lanes& x) {
  for (int64_t i = 0; i < kLanes; ++i) x[i] = exponential_below(x[i]);
}
// Lanes are joined 8 by 8, 4 by 4, ..., so that the order is the same at every vector width.
DDH_SIMD_INLINE float sum_of(const Lanes& x) {
  float parts[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) parts[i] = x[i];
  for (int64_t n = kLanes / 2; n > 0; n /= 2) {
    for (int64_t i = 0; i < n; ++i) parts[i] += parts[i + n];
  }
  return parts[0];
}
DDH_SIMD_INLINE float largest_of(const float* x, int64_t columns) {
  Lanes largest = lanes(x);
  for (int64_t j = kLanes; j < columns; j += kLanes) largest = lanes(x + j) > largest ? lanes(x + j) : largest;
  float out = largest[0];
  for (int64_t i = 1; i < kLanes; ++i) out = largest[i] > out ? largest[i] : out;
  return out;
}
// The sum of a[d] b[d] over a row.
DDH_SIMD_INLINE float dot(const float* a, const float* b, int64_t n) {
  Lanes sums{};
  int64_t d = 0;
  for (; d + kLanes <= n; d += kLanes) sums += lanes(a + d) * lanes(b + d);
  float sum = sum_of(sums);
  for (; d < n; ++d) sum += a[d] * b[d];
  return sum;
}

// A block of queries: rows first .. first + n - 1, which see keys 0 .. keys - 1; `columns`: keys in whole lanes.
struct Block {
  int64_t first, n, keys, columns;
  Block(const HeadShape& s, int64_t begin)
      : first(begin), n(std::min(kQueries, s.T - begin)), keys(s.causal ? begin + n : s.T), columns(padded(keys)) {}
  // Keys that row r of the block sees.
  [[nodiscard]] int64_t seen(const HeadShape& s, int64_t r) const { return s.causal ? first + r + 1 : s.T; }
  // Scores of keys that a row does not see become -infinity, whose exponential is 0.
  DDH_SIMD_INLINE void hide(const HeadShape& s, float* scores, int64_t row) const {
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t j = seen(s, r); j < columns; ++j) scores[r * row + j] = -std::numeric_limits<float>::infinity();
    }
  }
};

DDH_SIMD_INLINE float scale_of(const HeadShape& s) { return 1.0F / __builtin_sqrtf(static_cast<float>(s.D)); }

struct Attend {
  DDH_SIMD_BODY void run(const HeadShape& shape, HeadRows q, HeadRows k, HeadRows v, HeadResult out, float* log_sum_exp,
                         float* memory) {
    const HeadShape s = shape;
    const float scale = scale_of(s);
    const int64_t D = padded(s.D), T = padded(s.T);
    float *k_t = memory, *values = k_t + s.D * T, *scores = values + s.T * D, *result = scores + kQueries * T;
    transpose(k, s, k_t);
    copy_rows(v, s, values);
    for (int64_t first = 0; first < s.T; first += kQueries) {
      const Block b(s, first);
      product<false>({q.data + first * q.stride, q.stride, 1}, k_t, T, 0, s.D, scores, T, b.n, b.columns);
      b.hide(s, scores, T);
      float inverse[kQueries];
      for (int64_t r = 0; r < b.n; ++r) {
        float* const row = scores + r * T;
        const float largest = largest_of(row, b.columns) * scale;
        Lanes sums{};
        for (int64_t j = 0; j < b.columns; j += kLanes) {
          Lanes& x = lanes(row + j);
          x = x * scale - largest;
          exponentiate(x);
          sums += x;
        }
        const float sum = sum_of(sums);
        inverse[r] = 1.0F / sum;
        log_sum_exp[first + r] = largest + __builtin_logf(sum);
      }
      product<false>({scores, T, 1}, values, D, 0, b.keys, result, D, b.n, D);
      for (int64_t r = 0; r < b.n; ++r) give_rows(result + r * D, s, first + r, 1, inverse[r], out);
    }
  }
};

struct AttendBackward {
  DDH_SIMD_BODY void run(const HeadShape& shape, HeadRows q, HeadRows k, HeadRows v, HeadRows out, HeadRows d_out,
                         const float* log_sum_exp, const HeadGradients& gradients, float* memory) {
    const HeadShape s = shape;
    const float scale = scale_of(s);
    const int64_t D = padded(s.D), T = padded(s.T);
    float *k_t = memory, *v_t = k_t + s.D * T, *queries = v_t + s.D * T, *keys = queries + s.T * D,
          *d_rows = keys + s.T * D, *d_k = d_rows + s.T * D, *d_v = d_k + s.T * D, *p = d_v + s.T * D,
          *d_s = p + kQueries * T, *d_q = d_s + kQueries * T;
    transpose(k, s, k_t);
    transpose(v, s, v_t);
    copy_rows(q, s, queries);
    copy_rows(k, s, keys);
    copy_rows(d_out, s, d_rows);
    for (int64_t i = 0; i < s.T * D; ++i) d_k[i] = d_v[i] = 0;
    for (int64_t first = 0; first < s.T; first += kQueries) {
      const Block b(s, first);
      product<false>({queries + first * D, D, 1}, k_t, T, 0, s.D, p, T, b.n, b.columns);
      product<false>({d_rows + first * D, D, 1}, v_t, T, 0, s.D, d_s, T, b.n, b.columns);
      b.hide(s, p, T);
      for (int64_t r = 0; r < b.n; ++r) {
        const int64_t t = first + r;
        const float delta = dot(out.data + t * out.stride, d_out.data + t * d_out.stride, s.D), lse = log_sum_exp[t];
        for (int64_t j = 0; j < b.columns; j += kLanes) {
          Lanes &x = lanes(p + r * T + j), &g = lanes(d_s + r * T + j);
          x = x * scale - lse;
          exponentiate(x);
          g = x * (g - delta);
        }
      }
      product<false>({d_s, T, 1}, keys, D, 0, b.keys, d_q, D, b.n, D);
      give_rows(d_q, s, first, b.n, scale, gradients.q);
      product<true>({p, 1, T}, d_rows + first * D, D, 0, b.n, d_v, D, b.keys, D);
      product<true>({d_s, 1, T}, queries + first * D, D, 0, b.n, d_k, D, b.keys, D);
    }
    give_rows(d_k, s, 0, s.T, scale, gradients.k);
    give_rows(d_v, s, 0, s.T, 1.0F, gradients.v);
  }
};

}  // namespace

int64_t attend_numel(const HeadShape& s) {
  const int64_t D = padded(s.D), T = padded(s.T);
  return s.D * T + s.T * D + kQueries * (T + D);
}

int64_t attend_backward_numel(const HeadShape& s) {
  const int64_t D = padded(s.D), T = padded(s.T);
  return 2 * s.D * T + 5 * s.T * D + kQueries * (2 * T + D);
}

HeadKernels head_kernels(ddh::SimdLevel level) {
  return {FusedKernel<Attend>::at(level), FusedKernel<AttendBackward>::at(level)};
}

}  // namespace ops
