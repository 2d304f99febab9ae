// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "ddh/sdk/kernels/simd.hpp"

namespace kgat {
namespace {

inline void add(const float* x, int64_t n, float* out) {
  for (int64_t c = 0; c < n; ++c) out[c] += x[c];
}

// Rows first .. end - 1 of out get the sums over their entries: weight times row `neighbour` of x. `edge`: numbers of the
// entries' weights; nullptr: in order.
struct SumEntries {
  DDH_SIMD_BODY void run(const int64_t* begin, const int32_t* neighbour, const int32_t* edge, const float* weights,
                         const float* x, int64_t width, int64_t first, int64_t end, float* out) {
    for (int64_t row = first; row < end; ++row) {
      float* const to = out + row * width;
      for (int64_t i = begin[row]; i < begin[row + 1]; ++i) {
        const float* const from = x + neighbour[i] * width;
        const float weight = weights[edge != nullptr ? edge[i] : i];
        DDH_SIMD_LOOP for (int64_t c = 0; c < width; ++c) to[c] += weight * from[c];
      }
    }
  }
};

struct SumAndProduct {
  DDH_SIMD_BODY void run(const float* x, const float* s, int64_t n, float* sum, float* product) {
    if (product == nullptr) {
      DDH_SIMD_LOOP for (int64_t i = 0; i < n; ++i) sum[i] = x[i] + s[i];
      return;
    }
    DDH_SIMD_LOOP for (int64_t i = 0; i < n; ++i) {
      sum[i] = x[i] + s[i];
      product[i] = x[i] * s[i];
    }
  }
};

struct SumAndProductBackward {
  DDH_SIMD_BODY void run(const float* x, const float* s, const float* d_sum, const float* d_product, int64_t n,
                         float* dx, float* ds) {
    DDH_SIMD_LOOP for (int64_t i = 0; i < n; ++i) {
      dx[i] = d_sum[i] + d_product[i] * s[i];
      ds[i] = d_sum[i] + d_product[i] * x[i];
    }
  }
};

struct Leaky {
  DDH_SIMD_BODY void run(const float* z, const float* z_2, float slope, int64_t n, float* y) {
    if (z_2 == nullptr) {
      DDH_SIMD_LOOP for (int64_t i = 0; i < n; ++i) y[i] = z[i] > 0 ? z[i] : z[i] * slope;
      return;
    }
    DDH_SIMD_LOOP for (int64_t i = 0; i < n; ++i) {
      y[i] = (z[i] > 0 ? z[i] : z[i] * slope) + (z_2[i] > 0 ? z_2[i] : z_2[i] * slope);
    }
  }
};

struct LeakyBackward {
  DDH_SIMD_BODY void run(const float* z, float slope, const float* dy, int64_t n, float* dz) {
    DDH_SIMD_LOOP for (int64_t i = 0; i < n; ++i) dz[i] = z[i] > 0 ? dy[i] : dy[i] * slope;
  }
};

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
  for_row_ranges(graph.n_nodes(), [&](int64_t first, int64_t end) {
    std::fill_n(out + first * width, (end - first) * width, 0.0F);
    ddh::Kernel<SumEntries>::run(graph.row_begin.data(), graph.tail.data(), nullptr, weights, x, width, first, end,
                                 out);
  });
}

void add_transposed(const Graph& graph, const float* weights, const float* x, int64_t width, float* out) {
  for_row_ranges(graph.n_nodes(), [&](int64_t first, int64_t end) {
    ddh::Kernel<SumEntries>::run(graph.column_begin.data(), graph.column_head.data(), graph.column_edge.data(), weights,
                                 x, width, first, end, out);
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
  ddh::for_ranges(n, [&](int64_t at, int64_t count) {
    ddh::Kernel<SumAndProduct>::run(x + at, s + at, count, sum + at, product != nullptr ? product + at : nullptr);
  });
}

void sum_and_product_backward(const float* x, const float* s, const float* d_sum, const float* d_product, int64_t n,
                              float* dx, float* ds) {
  ddh::for_ranges(n, [&](int64_t at, int64_t count) {
    ddh::Kernel<SumAndProductBackward>::run(x + at, s + at, d_sum + at, d_product + at, count, dx + at, ds + at);
  });
}

void leaky(const float* z, const float* z_2, float slope, int64_t n, float* y) {
  ddh::for_ranges(n, [&](int64_t at, int64_t count) {
    ddh::Kernel<Leaky>::run(z + at, z_2 != nullptr ? z_2 + at : nullptr, slope, count, y + at);
  });
}

void leaky_backward(const float* z, float slope, const float* dy, int64_t n, float* dz) {
  ddh::for_ranges(
      n, [&](int64_t at, int64_t count) { ddh::Kernel<LeakyBackward>::run(z + at, slope, dy + at, count, dz + at); });
}

}  // namespace kgat
