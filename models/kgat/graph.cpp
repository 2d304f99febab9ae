// SPDX-License-Identifier: Apache-2.0
#include "graph.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

namespace kgat {
namespace {

struct Edge {
  int32_t head, tail, relation;
  auto operator<=>(const Edge&) const = default;
};

std::vector<Edge> edges_of(const KgatData& data) {
  const auto entities = static_cast<int32_t>(data.n_entities), relations = static_cast<int32_t>(data.n_relations);
  std::vector<Edge> edges;
  for (size_t u = 0; u < data.train.size(); ++u) {
    const int32_t user = entities + static_cast<int32_t>(u);
    for (const int32_t item : data.train[u]) {
      edges.push_back({user, item, 0});
      edges.push_back({item, user, 1});
    }
  }
  for (const Triple& t : data.kg) {
    edges.push_back({t.head, t.tail, 2 + t.relation});
    edges.push_back({t.tail, t.head, 2 + relations + t.relation});
  }
  std::sort(edges.begin(), edges.end());
  return edges;
}

}  // namespace

Graph::Graph(const KgatData& data) : n_relations(2 * (data.n_relations + 1)) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const auto n_nodes = static_cast<size_t>(data.n_entities + data.n_users());
  if (n_nodes > static_cast<size_t>(kMost) || n_relations > kMost)
    ddh::fail(DDH_OUT_OF_RANGE, "the graph has ", n_nodes, " nodes and ", n_relations,
              " relations in both directions, at most 2^31 - 1 are carried; take fewer data");
  const std::vector<Edge> edges = edges_of(data);
  if (edges.size() > static_cast<size_t>(kMost))
    ddh::fail(DDH_OUT_OF_RANGE, "the graph has ", edges.size(),
              " edges, at most 2^31 - 1 are carried; take fewer data");
  row_begin.assign(n_nodes + 1, 0);
  for (const Edge& edge : edges) {
    ++row_begin[at(edge.head) + 1];
    head.push_back(edge.head);
    tail.push_back(edge.tail);
    relation.push_back(edge.relation);
  }
  for (size_t i = 0; i < n_nodes; ++i) {
    if (row_begin[i + 1] > 0) heads.push_back(static_cast<int32_t>(i));
    row_begin[i + 1] += row_begin[i];
  }
  transpose();
}

void Graph::transpose() {
  const size_t n_nodes = row_begin.size() - 1, n_edges = tail.size();
  column_begin.assign(n_nodes + 1, 0);
  for (const int32_t t : tail) ++column_begin[at(t) + 1];
  for (size_t i = 0; i < n_nodes; ++i) column_begin[i + 1] += column_begin[i];
  std::vector<int64_t> next(column_begin.begin(), column_begin.end() - 1);
  column_edge.resize(n_edges), column_head.resize(n_edges);
  for (size_t e = 0; e < n_edges; ++e) {
    const auto place = static_cast<size_t>(next[at(tail[e])]++);
    column_edge[place] = static_cast<int32_t>(e);
    column_head[place] = head[e];
  }
}

bool Graph::has_edge(int32_t head_node, int32_t its_relation, int32_t tail_node) const {
  const auto begin = tail.begin() + row_begin[at(head_node)], end = tail.begin() + row_begin[at(head_node) + 1];
  for (auto it = std::lower_bound(begin, end, tail_node); it != end && *it == tail_node; ++it) {
    if (relation[static_cast<size_t>(it - tail.begin())] == its_relation) return true;
  }
  return false;
}

std::vector<float> Graph::initial_weights(Adjacency kind) const {
  std::unordered_map<int64_t, int64_t> out_degree, in_degree;  // of a node in a relation
  const auto key = [&](int32_t node, size_t e) { return node * n_relations + relation[e]; };
  for (size_t e = 0; e < tail.size(); ++e) ++out_degree[key(head[e], e)], ++in_degree[key(tail[e], e)];
  std::vector<float> weights;
  for (size_t e = 0; e < tail.size(); ++e) {
    const auto out = static_cast<double>(out_degree[key(head[e], e)]);
    const auto in = static_cast<double>(in_degree[key(tail[e], e)]);
    weights.push_back(static_cast<float>(kind == Adjacency::kRandomWalk ? 1 / out : 1 / std::sqrt(out * in)));
  }
  return weights;
}

}  // namespace kgat
