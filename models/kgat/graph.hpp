// SPDX-License-Identifier: Apache-2.0
//
// kgat/graph.hpp: the collaborative knowledge graph: entities and users as nodes, each pair of the training data and each
// triple of the knowledge as an edge in both directions. Ids are those of the port to PyTorch: entities come first, then
// users; relation 0 leads from user to item, 1 back, 2 + r is relation r of the data, 2 + n_relations + r its inverse.
#pragma once

#include <cstdint>
#include <vector>

#include "config.hpp"
#include "data.hpp"

namespace kgat {

// A sparse matrix (N, N) with its transpose. Entries keep their order for ever, so sums over them have one order.
struct Graph {
  explicit Graph(const KgatData& data);

  [[nodiscard]] int64_t n_nodes() const { return static_cast<int64_t>(row_begin.size()) - 1; }
  [[nodiscard]] int64_t n_edges() const { return static_cast<int64_t>(tail.size()); }
  [[nodiscard]] int64_t degree(int32_t node) const { return row_begin[at(node) + 1] - row_begin[at(node)]; }
  [[nodiscard]] bool has_edge(int32_t head, int32_t relation, int32_t tail_node) const;

  // Weights of the edges before any attention is known (E).
  [[nodiscard]] std::vector<float> initial_weights(Adjacency kind) const;

  int64_t n_relations = 0;                    // in both directions
  std::vector<int64_t> row_begin;             // (N + 1) edges of a head; ordered by tail, then relation
  std::vector<int32_t> head, tail, relation;  // (E)
  std::vector<int64_t> column_begin;  // (N + 1) entries of a tail in the two next; ordered by head, then relation
  std::vector<int32_t> column_edge;   // (E) number of the edge
  std::vector<int32_t> column_head;   // (E)
  std::vector<int32_t> heads;         // nodes that have edges, ascending

 private:
  static size_t at(int32_t node) { return static_cast<size_t>(node); }
  void transpose();
};

}  // namespace kgat
