// SPDX-License-Identifier: Apache-2.0
#include "column_sums.hpp"

#include <algorithm>
#include <array>

#include "ddh/sdk/torch/pieces.hpp"

namespace ops {
namespace {

constexpr int64_t kRun = 64;       // rows
constexpr int64_t kColumns = 128;  // of a piece: sums stay in registers and in the first-level cache

// add(row, first column, columns, sums) for all rows; the sums of a run go into out when it ends.
template <class Add>
void sum_columns(int64_t rows, int64_t columns, float* out, const Add& add) {
  ddh::for_pieces((columns + kColumns - 1) / kColumns, [&](int64_t piece) {
    const int64_t first = piece * kColumns, n = std::min(kColumns, columns - first);
    std::fill_n(out + first, n, 0.0F);
    for (int64_t begin = 0; begin < rows; begin += kRun) {
      std::array<float, kColumns> sums{};
      for (int64_t r = begin; r < std::min(begin + kRun, rows); ++r) add(r, first, n, sums.data());
      for (int64_t c = 0; c < n; ++c) out[first + c] += sums[static_cast<size_t>(c)];
    }
  });
}

}  // namespace

void column_sums(const float* x, int64_t rows, int64_t columns, float* out) {
  sum_columns(rows, columns, out, [&](int64_t r, int64_t first, int64_t n, float* sums) {
    const float* row = x + r * columns + first;
    for (int64_t c = 0; c < n; ++c) sums[c] += row[c];
  });
}

void layer_norm_weight_backward(const LayerNormRows& in, float* d_weight, float* d_bias) {
  sum_columns(in.rows, in.columns, d_weight, [&](int64_t r, int64_t first, int64_t n, float* sums) {
    const float *dy = in.dy + r * in.columns + first, *x = in.x + r * in.columns + first;
    const float mean = in.mean[r], rstd = in.rstd[r];
    for (int64_t c = 0; c < n; ++c) sums[c] += dy[c] * ((x[c] - mean) * rstd);
  });
  if (d_bias != nullptr) column_sums(in.dy, in.rows, in.columns, d_bias);
}

}  // namespace ops
