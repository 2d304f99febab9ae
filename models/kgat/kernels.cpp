// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "ddh/sdk/torch/pieces.hpp"

namespace kgat {
namespace {

constexpr int64_t kRowsOfPiece = 256;

// body(row) for all rows; a row belongs to one thread.
template <class Body>
void for_rows(int64_t rows, const Body& body) {
  ddh::for_pieces((rows + kRowsOfPiece - 1) / kRowsOfPiece, [&](int64_t piece) {
    const int64_t end = std::min(rows, (piece + 1) * kRowsOfPiece);
    for (int64_t r = piece * kRowsOfPiece; r < end; ++r) body(r);
  });
}

inline void add_scaled(const float* x, float factor, int64_t n, float* out) {
  for (int64_t c = 0; c < n; ++c) out[c] += factor * x[c];
}
inline void add(const float* x, int64_t n, float* out) {
  for (int64_t c = 0; c < n; ++c) out[c] += x[c];
}

}  // namespace

float dot(const float* a, const float* b, int64_t n) {
  constexpr int64_t kLanes = 16;
  std::array<float, kLanes> sums{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) sums[static_cast<size_t>(l)] += a[i + l] * b[i + l];
  }
  for (int64_t l = 0; i + l < n; ++l) sums[static_cast<size_t>(l)] += a[i + l] * b[i + l];
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) sums[l] += sums[l + half];
  }
  return sums[0];
}

void multiply(const Graph& graph, const float* weights, const float* x, int64_t width, float* out) {
  for_rows(graph.n_nodes(), [&](int64_t row) {
    float* const to = out + row * width;
    std::fill_n(to, width, 0.0F);
    const auto h = static_cast<size_t>(row);
    for (auto e = static_cast<size_t>(graph.row_begin[h]); e < static_cast<size_t>(graph.row_begin[h + 1]); ++e)
      add_scaled(x + graph.tail[e] * width, weights[e], width, to);
  });
}

void add_transposed(const Graph& graph, const float* weights, const float* x, int64_t width, float* out) {
  for_rows(graph.n_nodes(), [&](int64_t row) {
    const auto t = static_cast<size_t>(row);
    for (auto i = static_cast<size_t>(graph.column_begin[t]); i < static_cast<size_t>(graph.column_begin[t + 1]); ++i)
      add_scaled(x + graph.column_head[i] * width, weights[graph.column_edge[i]], width, out + row * width);
  });
}

RowPlaces::RowPlaces(const std::vector<int32_t>& rows) : places(rows.size()) {
  std::iota(places.begin(), places.end(), 0);
  const auto node = [&](int64_t place) { return rows[static_cast<size_t>(place)]; };
  std::stable_sort(places.begin(), places.end(), [&](int64_t a, int64_t b) { return node(a) < node(b); });
  for (size_t i = 0; i < places.size(); ++i) {
    if (i > 0 && node(places[i]) == nodes.back()) continue;
    nodes.push_back(node(places[i]));
    begin.push_back(static_cast<int64_t>(i));
  }
  begin.push_back(static_cast<int64_t>(places.size()));
}

void sum_rows(const RowPlaces& rows, const Columns& x, float* out) {
  for_rows(static_cast<int64_t>(rows.nodes.size()), [&](int64_t i) {
    float* const to = out + i * x.count;
    std::fill_n(to, x.count, 0.0F);
    for (auto p = static_cast<size_t>(rows.begin[static_cast<size_t>(i)]);
         p < static_cast<size_t>(rows.begin[static_cast<size_t>(i) + 1]); ++p)
      add(x.data + rows.places[p] * x.stride + x.first, x.count, to);
  });
}

void add_rows(const RowPlaces& rows, const Columns& x, float* out) {
  std::vector<float> sums(rows.nodes.size() * static_cast<size_t>(x.count));
  sum_rows(rows, x, sums.data());
  for_rows(static_cast<int64_t>(rows.nodes.size()), [&](int64_t i) {
    add(sums.data() + i * x.count, x.count, out + rows.nodes[static_cast<size_t>(i)] * x.count);
  });
}

void row_norms(const float* x, int64_t rows, int64_t width, float* norms) {
  constexpr float kLeast = 1e-12F;
  for_rows(rows, [&](int64_t r) { norms[r] = std::max(std::sqrt(dot(x + r * width, x + r * width, width)), kLeast); });
}

void add_normalize_backward(const std::vector<int32_t>& nodes, const float* x, const float* norms, const float* dy,
                            int64_t width, float* dx) {
  for_rows(static_cast<int64_t>(nodes.size()), [&](int64_t i) {
    const int64_t node = nodes[static_cast<size_t>(i)];
    const float *const row = x + node * width, *const d = dy + i * width, inverse = 1 / norms[node];
    const float along = dot(row, d, width) * inverse * inverse;  // times x: the part of d in the direction of x
    for (int64_t c = 0; c < width; ++c) dx[node * width + c] += (d[c] - along * row[c]) * inverse;
  });
}

void sum_and_product(const float* x, const float* s, int64_t n, float* sum, float* product) {
  ddh::for_ranges(n, [&](int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) sum[i] = x[i] + s[i];
    if (product == nullptr) return;
    for (int64_t i = first; i < first + count; ++i) product[i] = x[i] * s[i];
  });
}

void sum_and_product_backward(const float* x, const float* s, const float* d_sum, const float* d_product, int64_t n,
                              float* dx, float* ds) {
  ddh::for_ranges(n, [&](int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) dx[i] = d_sum[i] + d_product[i] * s[i];
    for (int64_t i = first; i < first + count; ++i) ds[i] = d_sum[i] + d_product[i] * x[i];
  });
}

void leaky(const float* z, float slope, int64_t n, bool adds, float* y) {
  ddh::for_ranges(n, [&](int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) {
      const float value = z[i] > 0 ? z[i] : z[i] * slope;
      y[i] = adds ? y[i] + value : value;
    }
  });
}

void leaky_backward(const float* z, float slope, const float* dy, int64_t n, float* dz) {
  ddh::for_ranges(n, [&](int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) dz[i] = z[i] > 0 ? dy[i] : dy[i] * slope;
  });
}

}  // namespace kgat
