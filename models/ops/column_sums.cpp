// SPDX-License-Identifier: Apache-2.0
#include "column_sums.hpp"

#include <algorithm>

#include "ddh/sdk/kernels/simd.hpp"
#include "ddh/sdk/torch/pieces.hpp"

namespace ops {
namespace {

constexpr int64_t kRun = 64;       // rows
constexpr int64_t kColumns = 128;  // of a piece: sums stay in registers and in the first-level cache

// out[c] = or += the sum of x over some rows, `stride` elements apart; at most kColumns columns.
struct RunSums {
  DDH_SIMD_BODY void run(const float* x, int64_t rows, int64_t stride, int64_t columns, bool adds, float* out) {
    float sums[kColumns] = {};
    for (int64_t r = 0; r < rows; ++r) {
      DDH_SIMD_LOOP
      for (int64_t c = 0; c < columns; ++c) sums[c] += x[r * stride + c];
    }
    for (int64_t c = 0; c < columns; ++c) out[c] = adds ? out[c] + sums[c] : sums[c];
  }
};

// The same of dy times the normed x.
struct NormedRunSums {
  DDH_SIMD_BODY void run(const LayerNormBackwardRows& in, int64_t columns, bool adds, float* out) {
    const LayerNormBackwardRows s = in;
    float sums[kColumns] = {};
    for (int64_t r = 0; r < s.rows; ++r) {
      const float *dy = s.dy + r * s.width, *x = s.x + r * s.width;
      const float mean = s.mean[r], rstd = s.rstd[r];
      DDH_SIMD_LOOP
      for (int64_t c = 0; c < columns; ++c) sums[c] += dy[c] * ((x[c] - mean) * rstd);
    }
    for (int64_t c = 0; c < columns; ++c) out[c] = adds ? out[c] + sums[c] : sums[c];
  }
};

// add(first row, rows, first column, columns, whether to add to what is there) for runs of rows, in order.
template <class Add>
void sum_columns(int64_t rows, int64_t columns, float* out, const Add& add) {
  if (rows == 0) std::fill_n(out, columns, 0.0F);
  ddh::for_pieces((columns + kColumns - 1) / kColumns, [&](int64_t piece) {
    const int64_t first = piece * kColumns, n = std::min(kColumns, columns - first);
    for (int64_t begin = 0; begin < rows; begin += kRun) add(begin, std::min(kRun, rows - begin), first, n, begin > 0);
  });
}

}  // namespace

void column_sums(const float* x, int64_t rows, int64_t columns, float* out) {
  sum_columns(rows, columns, out, [&](int64_t row, int64_t n, int64_t first, int64_t width, bool adds) {
    ddh::Kernel<RunSums>::run(x + row * columns + first, n, columns, width, adds, out + first);
  });
}

void layer_norm_weight_backward(const LayerNormBackwardRows& in, float* d_weight, float* d_bias) {
  sum_columns(in.rows, in.width, d_weight, [&](int64_t row, int64_t n, int64_t first, int64_t width, bool adds) {
    const int64_t at = row * in.width + first;
    ddh::Kernel<NormedRunSums>::run({in.dy + at, in.x + at, in.mean + row, in.rstd + row, n, in.width}, width, adds,
                                    d_weight + first);
  });
  if (d_bias != nullptr) column_sums(in.dy, in.rows, in.width, d_bias);
}

}  // namespace ops
