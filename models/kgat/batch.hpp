// SPDX-License-Identifier: Apache-2.0
//
// kgat/batch.hpp: micro-batches of the programs, and how they are drawn. A draw depends on run.seed, the epoch and the
// index of the sample alone.
#pragma once

#include <optional>
#include <vector>

#include "config.hpp"
#include "ddh/kind/model.h"
#include "graph.hpp"
#include "kernels.hpp"

namespace kgat {

// Rows that one relation projects, and the samples (kg) or edges (attention) that they belong to.
struct RelationGroup {
  int32_t relation;
  int64_t first_row, n_rows;
  int64_t first, n;
};

// The order of a batch of relations, for operators. A sample (kg) or edge (attention) has a number in the order of the
// groups; n of them.
struct BatchIndices {
  std::vector<int64_t> order;     // rows: those of the heads (n), of the tails (n), and of the wrong tails (n, kg)
  std::vector<int64_t> inverse;   // kg: the place in `order` of each row
  std::vector<int64_t> relation;  // (n)
  std::vector<int64_t> relation_begin;  // (R + 1) samples of each relation
  // Attention; edges are now in the order of the graph.
  std::vector<int64_t> edge_place;    // (n) the number of each edge in the order of the groups
  std::vector<int64_t> node_begin;    // (nodes + 1) edges of each node
  std::vector<int64_t> node_of_edge;  // (n) from the batch's first node
  std::vector<int64_t> run_begin;     // (runs + 1) a run: the edges between two nodes
  std::vector<int64_t> run;           // (n) the run of each edge
  std::vector<uint8_t> is_later;      // (n) not the first of its run
};

enum class BatchKind { kCf, kKg, kAttention, kEval };

struct KgatBatch {
  BatchKind kind = BatchKind::kEval;
  int64_t B = 0;  // samples
  // Nodes that the batch reads. cf: users (B), positive items (B), negative items (B). eval: users (B). kg, in each group:
  // heads (n), tails (n), wrong tails (n). attention, in each group: heads (n), tails (n).
  std::vector<int32_t> rows;
  std::optional<RowPlaces> places;      // of rows, in programs with a backward
  std::vector<RelationGroup> groups;    // kg, attention
  std::vector<int32_t> samples;         // kg: numbers of the samples in the order of the groups
  std::vector<int32_t> edges;           // attention: numbers of the edges in the order of the groups
  int64_t first_node = 0;               // attention: of B nodes
  std::vector<int32_t> users;           // eval: numbers of users (B)
  std::optional<BatchIndices> indices;  // kg, attention: by operators
  [[nodiscard]] bool is_projected() const { return kind == BatchKind::kKg || kind == BatchKind::kAttention; }
  [[nodiscard]] int64_t bytes() const;
};

struct CfTriple {
  int32_t user, positive, negative;  // nodes
};
KgatBatch cf_batch(const std::vector<CfTriple>& samples);

struct KgSample {
  int32_t head, relation, tail, wrong_tail;
};
KgatBatch kg_batch(const std::vector<KgSample>& samples);

// All edges of the nodes first .. first + n - 1.
KgatBatch attention_batch(const Graph& graph, int64_t first, int64_t n);

// Of a batch with groups.
BatchIndices indices_of(const KgatBatch& batch, const Graph& graph);

class Sampler {
 public:
  // References stay valid for the life of the object.
  Sampler(const Config& config, const KgatData& data, const Graph& graph);

  // Samples of an epoch: as many as the data has pairs (or users), or the graph has edges.
  [[nodiscard]] uint64_t n_cf_samples() const {
    return config_.cf_sampling == CfSampling::kEachUser ? users_.size() : static_cast<uint64_t>(pair_begin_.back());
  }
  [[nodiscard]] uint64_t n_kg_samples() const { return static_cast<uint64_t>(graph_.n_edges()); }

  [[nodiscard]] KgatBatch cf(const ddh_batch_args& args) const;
  [[nodiscard]] KgatBatch kg(const ddh_batch_args& args) const;

 private:
  const Config& config_;
  const KgatData& data_;
  const Graph& graph_;
  std::vector<int32_t> users_;       // that have items
  std::vector<int64_t> pair_begin_;  // (users_ + 1)
};

}  // namespace kgat
