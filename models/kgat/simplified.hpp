// SPDX-License-Identifier: Apache-2.0
//
// kgat/simplified.hpp: the simplified variant, a layer of which replaces TransR and its softmax. With p_i = W x_i, and
// m_e = W x_j for an edge i - j between user and item, m_e = W_r x_j for an edge of relation r of the knowledge graph:
//
//   z_i = sum over the edges e of i of  LeakyReLU(w . (p_i * m_e) + b) m_e
//   y_i = 5 h_i / |h_i|,  h = dropout(ReLU(z))
//
// y is what the next layer takes, and a part of the final representation. W is shared by all edges between users and items.
// The backward is written out by hand; every sum has one order.
#pragma once

#include <vector>

#include "kernels.hpp"
#include "layers.hpp"

namespace kgat {

inline constexpr float kLength = 5;  // of a layer's normalized rows

// Rows that a layer projects: 0 .. N - 1 are the nodes, by W; after them P pairs of relation and tail, by W_r.
struct SimplifiedGraph {
  // `between_items`: of the knowledge graph, only edges between two items.
  SimplifiedGraph(const Graph& graph, const KgatData& data, bool between_items);

  [[nodiscard]] int64_t n_nodes() const { return static_cast<int64_t>(begin.size()) - 1; }
  [[nodiscard]] int64_t n_pairs() const { return static_cast<int64_t>(pair_node.size()); }
  [[nodiscard]] int64_t n_rows() const { return n_nodes() + n_pairs(); }
  [[nodiscard]] int64_t n_edges() const { return static_cast<int64_t>(row.size()); }

  int64_t n_relations = 0;            // of the knowledge graph, in both directions
  std::vector<RelationGroup> groups;  // of the pairs: first_row counts from pair 0
  std::vector<int32_t> pair_node;     // (P) tails
  std::vector<int64_t> begin;         // (N + 1) edges of a head
  std::vector<int32_t> head, row;     // (E) the row is that of the tail
  std::vector<int64_t> row_begin;     // (N + P + 1) edges to a row, in:
  std::vector<int32_t> row_edge;      // (E)
  RowPlaces pair_places;              // where a node is the tail of pairs
};

struct SimplifiedSaved {
  at::Tensor rows;    // (N + P, out) projected
  at::Tensor scores;  // (E) before LeakyReLU
  at::Tensor norms;   // (N) |h|
};

// Parameters of a layer in its view. W_r (R, out, in) is left out if the knowledge graph has no relation.
enum SimplifiedParam : uint32_t { kShared, kAttentionWeight, kAttentionBias, kOfRelations };

// x (N, in) -> y (N, out)
at::Tensor simplified_layer(const UnitContext& u, const SimplifiedGraph& graph, const at::Tensor& x, int64_t out,
                            SimplifiedSaved& saved);
// Gradients of the parameters into the view; returns that of x (N, in).
at::Tensor simplified_backward(const UnitContext& u, const SimplifiedGraph& graph, const at::Tensor& dy,
                               const at::Tensor& x, const at::Tensor& y, const SimplifiedSaved& saved);

// The part of a layer that passes over its edges, by kernels (GraphOps has both ways): from the projected rows in `saved`,
// which gets the scores and norms, to y (N, out); and backward.
at::Tensor simplified_edges(const UnitContext& u, const SimplifiedGraph& graph, SimplifiedSaved& saved);
struct SimplifiedGradients {
  at::Tensor rows;          // (N + P, out)
  at::Tensor weight, bias;  // (out), (1) of the attention
};
SimplifiedGradients simplified_edges_backward(const UnitContext& u, const SimplifiedGraph& graph, const at::Tensor& dy,
                                              const at::Tensor& y, const SimplifiedSaved& saved);

// Multiplications and additions of a layer, and the bytes that it keeps.
struct LayerCost {
  double forward, backward, bytes;
};
LayerCost simplified_cost(const SimplifiedGraph& graph, int64_t in, int64_t out);

}  // namespace kgat
