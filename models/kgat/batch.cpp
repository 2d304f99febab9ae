// SPDX-License-Identifier: Apache-2.0
#include "batch.hpp"

#include <algorithm>
#include <numeric>

#include "ddh/sdk/kernels/counter_rng.hpp"
#include "ddh/sdk/model.hpp"

namespace kgat {
namespace {

// The random numbers of one sample in one epoch.
class Draws {
 public:
  Draws(const ddh::CounterRng& stream, int64_t epoch, int64_t sample)
      : stream_(stream),
        key_(ddh::mix64(static_cast<uint64_t>(epoch + 1) * ddh::kMixStep) ^ static_cast<uint64_t>(sample) << 20) {}
  // 0 .. n - 1; n is far below 2^32, so the remainder is as good as uniform.
  int64_t below(int64_t n) { return static_cast<int64_t>(stream_.bits(key_ + count_++) >> 1) % n; }

 private:
  const ddh::CounterRng& stream_;
  const uint64_t key_;
  uint64_t count_ = 0;
};

size_t index(int64_t i) { return static_cast<size_t>(i); }

// 0 .. n - 1 in turn. An epoch begins where the last one ended, so over epochs all have as many samples, but for one.
int64_t rotated(int64_t sample, int64_t epoch, uint64_t n_samples, size_t n) {
  return (sample + epoch * static_cast<int64_t>(n_samples)) % static_cast<int64_t>(n);
}

// Numbers 0 .. n - 1, ordered by relation, else as they are.
template <class RelationOf>
std::vector<int32_t> by_relation(int64_t n, const RelationOf& relation) {
  std::vector<int32_t> order(index(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return relation(a) < relation(b); });
  return order;
}

// One group for each relation of an order; every sample or edge of it has `rows_of_one` rows.
template <class RelationOf>
std::vector<RelationGroup> groups_of(const std::vector<int32_t>& order, int64_t rows_of_one,
                                     const RelationOf& relation) {
  std::vector<RelationGroup> groups;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    if (groups.empty() || groups.back().relation != relation(order[i]))
      groups.push_back({relation(order[i]), place * rows_of_one, 0, place, 0});
    groups.back().n_rows += rows_of_one;
    ++groups.back().n;
  }
  return groups;
}

}  // namespace

int64_t KgatBatch::bytes() const {
  size_t bytes = sizeof(int32_t) * (rows.size() + samples.size() + edges.size() + users.size()) +
                 sizeof(RelationGroup) * groups.size();
  if (places)
    bytes += sizeof(int32_t) * places->nodes.size() + sizeof(int64_t) * (places->begin.size() + places->places.size());
  if (indices) {
    const BatchIndices& x = *indices;
    for (const std::vector<int64_t>* v : {&x.order, &x.inverse, &x.relation, &x.relation_begin, &x.edge_place,
                                          &x.node_begin, &x.node_of_edge, &x.run_begin, &x.run})
      bytes += sizeof(int64_t) * v->size();
    bytes += x.is_later.size();
  }
  return static_cast<int64_t>(bytes);
}

KgatBatch cf_batch(const std::vector<CfTriple>& samples) {
  KgatBatch batch;
  batch.kind = BatchKind::kCf;
  batch.B = static_cast<int64_t>(samples.size());
  for (const CfTriple& s : samples) batch.rows.push_back(s.user);
  for (const CfTriple& s : samples) batch.rows.push_back(s.positive);
  for (const CfTriple& s : samples) batch.rows.push_back(s.negative);
  batch.places.emplace(batch.rows);
  return batch;
}

KgatBatch kg_batch(const std::vector<KgSample>& samples) {
  KgatBatch batch;
  batch.kind = BatchKind::kKg;
  batch.B = static_cast<int64_t>(samples.size());
  const auto relation = [&](int32_t i) { return samples[static_cast<size_t>(i)].relation; };
  batch.samples = by_relation(batch.B, relation);
  batch.groups = groups_of(batch.samples, 3, relation);
  for (const RelationGroup& group : batch.groups) {
    for (int32_t KgSample::*node : {&KgSample::head, &KgSample::tail, &KgSample::wrong_tail}) {
      for (int64_t i = group.first; i < group.first + group.n; ++i)
        batch.rows.push_back(samples[static_cast<size_t>(batch.samples[index(i)])].*node);
    }
  }
  batch.places.emplace(batch.rows);
  return batch;
}

KgatBatch attention_batch(const Graph& graph, int64_t first, int64_t n) {
  KgatBatch batch;
  batch.kind = BatchKind::kAttention;
  batch.B = n;
  batch.first_node = first;
  const int64_t begin = graph.row_begin[index(first)], end = graph.row_begin[index(first + n)];
  const auto edge = [&](int32_t i) { return index(begin + i); };
  const auto relation = [&](int32_t i) { return graph.relation[edge(i)]; };
  const std::vector<int32_t> order = by_relation(end - begin, relation);
  batch.groups = groups_of(order, 2, relation);
  for (const int32_t i : order) batch.edges.push_back(static_cast<int32_t>(begin + i));
  for (const RelationGroup& group : batch.groups) {
    for (const std::vector<int32_t>* nodes : {&graph.head, &graph.tail}) {
      for (int64_t i = group.first; i < group.first + group.n; ++i)
        batch.rows.push_back((*nodes)[static_cast<size_t>(batch.edges[index(i)])]);
    }
  }
  return batch;
}

BatchIndices indices_of(const KgatBatch& batch, const Graph& graph) {
  BatchIndices out;
  const bool is_attention = batch.kind == BatchKind::kAttention;
  const int64_t parts = is_attention ? 2 : 3;
  for (int64_t part = 0; part < parts; ++part) {
    for (const RelationGroup& group : batch.groups)
      for (int64_t i = 0; i < group.n; ++i) out.order.push_back(group.first_row + part * group.n + i);
  }
  out.relation_begin.assign(index(graph.n_relations) + 1, 0);
  for (const RelationGroup& group : batch.groups) {
    out.relation.insert(out.relation.end(), index(group.n), group.relation);
    out.relation_begin[static_cast<size_t>(group.relation) + 1] = group.n;
  }
  std::partial_sum(out.relation_begin.begin(), out.relation_begin.end(), out.relation_begin.begin());
  if (!is_attention) {
    out.inverse.resize(out.order.size());
    for (size_t i = 0; i < out.order.size(); ++i) out.inverse[index(out.order[i])] = static_cast<int64_t>(i);
    return out;
  }
  const int64_t begin = graph.row_begin[index(batch.first_node)];
  out.edge_place.resize(batch.edges.size());
  for (size_t i = 0; i < batch.edges.size(); ++i)
    out.edge_place[index(batch.edges[i] - begin)] = static_cast<int64_t>(i);
  for (int64_t node = 0; node <= batch.B; ++node)
    out.node_begin.push_back(graph.row_begin[index(batch.first_node + node)] - begin);
  for (size_t i = 0; i < batch.edges.size(); ++i) {
    const size_t e = index(begin) + i;
    const bool is_later = i > 0 && graph.head[e] == graph.head[e - 1] && graph.tail[e] == graph.tail[e - 1];
    if (!is_later) out.run_begin.push_back(static_cast<int64_t>(i));
    out.node_of_edge.push_back(graph.head[e] - batch.first_node);
    out.run.push_back(static_cast<int64_t>(out.run_begin.size()) - 1);
    out.is_later.push_back(is_later ? 1 : 0);
  }
  out.run_begin.push_back(static_cast<int64_t>(batch.edges.size()));
  return out;
}

Sampler::Sampler(const Config& config, const KgatData& data, const Graph& graph)
    : config_(config), data_(data), graph_(graph), pair_begin_{0} {
  for (size_t u = 0; u < data.train.size(); ++u) {
    if (data.train[u].empty()) continue;
    users_.push_back(static_cast<int32_t>(u));
    pair_begin_.push_back(pair_begin_.back() + static_cast<int64_t>(data.train[u].size()));
  }
}

KgatBatch Sampler::cf(const ddh_batch_args& args) const {
  const ddh::CounterRng stream(config_.seed, "kgat.cf");
  std::vector<CfTriple> samples;
  for (uint32_t b = 0; b < args.n_samples; ++b) {
    const int64_t sample = args.samples[b];
    Draws draws(stream, ddh::epoch_of(args, b), sample);
    const bool by_pair = config_.cf_sampling == CfSampling::kPairs;
    const int64_t place =
        by_pair ? std::upper_bound(pair_begin_.begin(), pair_begin_.end(), sample) - pair_begin_.begin() - 1
                : rotated(sample, ddh::epoch_of(args, b), n_cf_samples(), users_.size());
    const int32_t user = users_[index(place)];
    const std::vector<int32_t>& items = data_.train[static_cast<size_t>(user)];
    const int32_t positive =
        items[index(by_pair ? sample - pair_begin_[index(place)] : draws.below(static_cast<int64_t>(items.size())))];
    int32_t negative = 0;
    do {
      negative = static_cast<int32_t>(draws.below(data_.n_items));
    } while (std::binary_search(items.begin(), items.end(), negative));
    samples.push_back({static_cast<int32_t>(data_.n_entities) + user, positive, negative});
  }
  return cf_batch(samples);
}

KgatBatch Sampler::kg(const ddh_batch_args& args) const {
  const ddh::CounterRng stream(config_.seed, "kgat.kg");
  std::vector<KgSample> samples;
  for (uint32_t b = 0; b < args.n_samples; ++b) {
    const int64_t sample = args.samples[b];
    Draws draws(stream, ddh::epoch_of(args, b), sample);
    int64_t edge = sample;
    if (config_.kg_sampling == KgSampling::kHeads) {
      const std::vector<int32_t>& heads = graph_.heads;
      const int32_t head = heads[index(rotated(sample, ddh::epoch_of(args, b), n_kg_samples(), heads.size()))];
      edge = graph_.row_begin[static_cast<size_t>(head)] + draws.below(graph_.degree(head));
    }
    const int32_t head = graph_.head[index(edge)], relation = graph_.relation[index(edge)];
    int32_t wrong = 0;
    do {
      wrong = static_cast<int32_t>(draws.below(graph_.n_nodes()));
    } while (graph_.has_edge(head, relation, wrong));
    samples.push_back({head, relation, graph_.tail[index(edge)], wrong});
  }
  return kg_batch(samples);
}

}  // namespace kgat
