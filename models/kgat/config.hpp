// SPDX-License-Identifier: Apache-2.0
//
// kgat/config.hpp: the options of a knowledge graph attention network (Wang et al. 2019).
//
// Letters used in this folder: N nodes (entities, then users), E directed edges, R relations, d width of embeddings, k width
// of the space of relations, L layers, F width of the final representation, B samples of a micro-batch.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ddh/sdk/plugin.hpp"

namespace kgat {

// kSimplified: simplified.hpp. kMf: BPR-MF, the embeddings of users and items alone.
enum class Variant { kKgat, kSimplified, kMf };
enum class Aggregator { kBiInteraction, kGcn, kGraphSage };
enum class Adjacency { kRandomWalk, kSymmetric };
enum class CfSampling { kUsers, kPairs, kEachUser };
enum class KgSampling { kHeads, kTriples };

struct Config {
  Variant variant;
  Aggregator aggregator;
  Adjacency adjacency;
  bool joins_parallel_edges;  // one entry of the softmax for all relations between two nodes
  int64_t embed_dim, relation_dim;
  bool knows_items_only;        // of the knowledge graph, kSimplified takes the edges between two items
  std::vector<int64_t> layers;  // widths of the layers' outputs; empty for kMf
  double message_dropout, slope, l2_cf, l2_kg;
  CfSampling cf_sampling;
  KgSampling kg_sampling;
  std::vector<int64_t> ks;  // cut-offs of the ranking metrics, ascending
  uint64_t seed;
  at::ScalarType compute;

  // Options of section model. Throws ddh::Error.
  explicit Config(const ddh::Host& host);

  [[nodiscard]] size_t n_layers() const { return layers.size(); }
  // Width of what layer l takes.
  [[nodiscard]] int64_t width_in(size_t l) const { return l == 0 ? embed_dim : layers[l - 1]; }
  [[nodiscard]] int64_t final_width() const {
    int64_t width = embed_dim;
    for (const int64_t w : layers) width += w;
    return width;
  }
};

extern const char* const kSchema;  // JSON Schema of section model

}  // namespace kgat
