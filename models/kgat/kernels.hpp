// SPDX-License-Identifier: Apache-2.0
//
// kgat/kernels.hpp: sums over the edges of a graph and over the rows of a batch. Every sum has one order, which depends
// neither on the number of threads nor on the width of vectors. All fp32.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ddh/sdk/torch/pieces.hpp"
#include "graph.hpp"

namespace kgat {

// body(first, end) for ranges that cover all rows; one thread computes a range.
template <class Body>
void for_row_ranges(int64_t rows, const Body& body) {
  constexpr int64_t kRowsOfPiece = 256;
  ddh::for_pieces((rows + kRowsOfPiece - 1) / kRowsOfPiece,
                  [&](int64_t piece) { body(piece * kRowsOfPiece, std::min(rows, (piece + 1) * kRowsOfPiece)); });
}
// body(row) for all rows.
template <class Body>
void for_rows(int64_t rows, const Body& body) {
  for_row_ranges(rows, [&](int64_t first, int64_t end) {
    for (int64_t r = first; r < end; ++r) body(r);
  });
}

// out (N, width): row h is the sum over the edges of h of weight (E) times row tail of x (N, width).
void multiply(const Graph& graph, const float* weights, const float* x, int64_t width, float* out);
// The same with the transposed matrix, added to out: row t gets weight times row head of x, over the edges to t.
void add_transposed(const Graph& graph, const float* weights, const float* x, int64_t width, float* out);

// Where each distinct node occurs in a list of nodes.
struct RowPlaces {
  explicit RowPlaces(const std::vector<int32_t>& rows);
  std::vector<int32_t> nodes;  // distinct, ascending
  std::vector<int64_t> begin;  // (nodes + 1) in `places`
  std::vector<int64_t> places;
};

// Columns of a row-major matrix.
struct Columns {
  const float* data;
  int64_t stride, first, count;
};
// Row nodes[i] of out (N, count) gets the sum over its places of the columns of x.
void add_rows(const RowPlaces& rows, const Columns& x, float* out);
// Row i of out (nodes, count) becomes that sum.
void sum_rows(const RowPlaces& rows, const Columns& x, float* out);

// norms (rows) of x (rows, width), at least 1e-12.
void row_norms(const float* x, int64_t rows, int64_t width, float* norms);
// Row nodes[i] of dx (N, width) gets the gradient of x / |x| there, whose own gradient is row i of dy (nodes, width).
void add_normalize_backward(const std::vector<int32_t>& nodes, const float* x, const float* norms, const float* dy,
                            int64_t width, float* dx);

float dot(const float* a, const float* b, int64_t n);

// Element by element over n: the inputs of a bi-interaction, and gradients of x and of s from those of sum and product.
void sum_and_product(const float* x, const float* s, int64_t n, float* sum, float* product);
void sum_and_product_backward(const float* x, const float* s, const float* d_sum, const float* d_product, int64_t n,
                              float* dx, float* ds);
// y = LeakyReLU(z), plus LeakyReLU(z_2) where that is not nullptr; dz = dy times its slope.
void leaky(const float* z, const float* z_2, float slope, int64_t n, float* y);
void leaky_backward(const float* z, float slope, const float* dy, int64_t n, float* dz);

}  // namespace kgat
