// SPDX-License-Identifier: Apache-2.0
//
// engine/services/nodes.hpp: which ranks are on which node. A node has consecutive ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace ddhost {

class Nodes {
 public:
  // `ranks`: their number on each node, at least 1 each.
  explicit Nodes(const std::vector<int32_t>& ranks) {
    for (size_t node = 0; node < ranks.size(); ++node) {
      first_.push_back(static_cast<int32_t>(node_of_.size()));
      node_of_.insert(node_of_.end(), static_cast<size_t>(ranks[node]), static_cast<int32_t>(node));
    }
    const bool are_equal = std::equal(ranks.begin() + 1, ranks.end(), ranks.begin());
    ranks_per_node_ = ranks.size() > 1 && are_equal ? ranks.front() : 0;
  }
  // Nodes of `per_node` ranks, which divides the number of ranks; 0: one node.
  Nodes(int32_t world_size, int32_t per_node)
      : Nodes(std::vector<int32_t>(per_node > 0 ? static_cast<size_t>(world_size / per_node) : 1,
                                   per_node > 0 ? per_node : world_size)) {
    if (per_node > 0) ranks_per_node_ = per_node;
  }

  [[nodiscard]] int32_t count() const { return static_cast<int32_t>(first_.size()); }
  [[nodiscard]] int32_t world_size() const { return static_cast<int32_t>(node_of_.size()); }
  // 0: there is one node, or nodes differ in their number of ranks.
  [[nodiscard]] int32_t ranks_per_node() const { return ranks_per_node_; }
  [[nodiscard]] int32_t node(int32_t rank) const { return node_of_[static_cast<size_t>(rank)]; }
  [[nodiscard]] int32_t local_rank(int32_t rank) const { return rank - first_[static_cast<size_t>(node(rank))]; }
  // The number of ranks on each node.
  [[nodiscard]] std::vector<int32_t> sizes() const {
    std::vector<int32_t> out(first_.size());
    for (const int32_t node : node_of_) ++out[static_cast<size_t>(node)];
    return out;
  }
  // The IP address of each node; empty if all ranks are on one machine.
  [[nodiscard]] const std::vector<std::string>& addresses() const { return addresses_; }
  void set_addresses(std::vector<std::string> addresses) { addresses_ = std::move(addresses); }
  // Of each rank, ascending.
  [[nodiscard]] const std::vector<int32_t>& node_of() const { return node_of_; }

 private:
  std::vector<int32_t> node_of_, first_;  // first_: the first rank of each node
  std::vector<std::string> addresses_;
  int32_t ranks_per_node_ = 0;
};

}  // namespace ddhost
