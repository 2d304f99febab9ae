// SPDX-License-Identifier: Apache-2.0
//
// kgat/view.cpp: the samples of a batch as rows of ids, for people. Ids are those of the files: users, items and entities count
// from 0 each, and items are the first entities.
#include <algorithm>

#include "kgat.hpp"

namespace kgat {
namespace {

// "user 3, item 17; wrong item 250"
std::string cf_row(const KgatBatch& batch, size_t sample, int64_t n_entities) {
  const auto n = static_cast<size_t>(batch.B);
  return ddh::str("user ", batch.rows[sample] - n_entities, ", item ", batch.rows[n + sample], "; wrong item ",
                  batch.rows[2 * n + sample]);
}

// Which nodes and relations the numbers of the graph are (graph.hpp).
std::string node_text(const KgatData& data, int32_t node) {
  if (node >= data.n_entities) return ddh::str("user ", node - data.n_entities);
  return ddh::str(node < data.n_items ? "item " : "entity ", node);
}
std::string relation_text(const KgatData& data, int64_t relation) {
  if (relation < 2) return relation == 0 ? "interaction" : "interaction backwards";
  const int64_t of_data = relation - 2;
  return of_data < data.n_relations ? ddh::str("relation ", of_data)
                                    : ddh::str("relation ", of_data - data.n_relations, " backwards");
}

// "user 3, interaction, item 17; wrong tail entity 250"
std::string kg_row(const KgatBatch& batch, const KgatData& data, int32_t sample) {
  const int64_t place = std::find(batch.samples.begin(), batch.samples.end(), sample) - batch.samples.begin();
  const RelationGroup& group = *std::find_if(batch.groups.begin(), batch.groups.end(),
                                             [&](const RelationGroup& one) { return place < one.first + one.n; });
  const auto node = [&](int64_t part) {
    return node_text(data, batch.rows[static_cast<size_t>(group.first_row + part * group.n + place - group.first)]);
  };
  return ddh::str(node(0), ", ", relation_text(data, group.relation), ", ", node(1), "; wrong tail ", node(2));
}

}  // namespace

void Kgat::view(const ddh_batch* batch, uint32_t sample, const ddh::SampleParts& parts) const {
  const auto& of_batch = *reinterpret_cast<const KgatBatch*>(batch);
  if (of_batch.kind == BatchKind::kCf) {
    parts.text("row", cf_row(of_batch, sample, data_.n_entities));
  } else if (of_batch.kind == BatchKind::kKg) {
    parts.text("row", kg_row(of_batch, data_, static_cast<int32_t>(sample)));
  } else if (of_batch.kind == BatchKind::kEval) {
    const auto user = static_cast<size_t>(of_batch.users[sample]);
    std::string items;
    for (const int32_t item : data_.test[user]) items += ddh::str(" ", item);
    parts.text("row", ddh::str("user ", user, ", items", items));
  } else {
    parts.text("row", ddh::str("node ", of_batch.first_node + sample));
  }
}

}  // namespace kgat
