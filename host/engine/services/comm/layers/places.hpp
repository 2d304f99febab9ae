// SPDX-License-Identifier: Apache-2.0
//
// engine/services/comm/layers/places.hpp: the ranks of a run on several hosts, and which rank of a host handles which part
// of a collective. Every rank computes the same answers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/services/nodes.hpp"

namespace ddhost::layers {

// Part `index` of `of` equal parts of the work of a host.
struct Share {
  int32_t index, of;
};

class Places {
 public:
  Places(const Nodes& nodes, int32_t rank) : nodes_(nodes), rank_(rank), sizes_(nodes.sizes()) {
    int32_t first = 0;
    for (const int32_t size : sizes_) {
      first_.push_back(first);
      first += size;
    }
  }

  [[nodiscard]] const Nodes& nodes() const { return nodes_; }
  [[nodiscard]] int32_t rank() const { return rank_; }
  [[nodiscard]] int32_t host() const { return nodes_.node(rank_); }
  [[nodiscard]] int32_t n_hosts() const { return nodes_.count(); }
  [[nodiscard]] int32_t world_size() const { return nodes_.world_size(); }
  [[nodiscard]] int32_t host_of(int32_t rank) const { return nodes_.node(rank); }
  [[nodiscard]] int32_t local(int32_t rank) const { return nodes_.local_rank(rank); }
  [[nodiscard]] int32_t first(int32_t host) const { return first_[static_cast<size_t>(host)]; }
  [[nodiscard]] int32_t size(int32_t host) const { return sizes_[static_cast<size_t>(host)]; }
  [[nodiscard]] int32_t largest() const { return *std::max_element(sizes_.begin(), sizes_.end()); }
  [[nodiscard]] bool are_equal() const { return *std::min_element(sizes_.begin(), sizes_.end()) == largest(); }
  [[nodiscard]] bool is_here(int32_t rank) const { return host_of(rank) == host(); }
  // The ranks with this rank's place, one of each host. Requires are_equal.
  [[nodiscard]] std::vector<int32_t> column() const {
    std::vector<int32_t> ranks;
    for (const int32_t first : first_) ranks.push_back(first + local(rank_));
    return ranks;
  }

  [[nodiscard]] Share share_of(int32_t rank) const { return {local(rank), size(host_of(rank))}; }
  // The rank of a host that handles the share: on the owner's host the owner, and of equal hosts one of its column. It grows
  // with `index`.
  [[nodiscard]] int32_t handler(int32_t host, Share share) const {
    return first(host) + static_cast<int32_t>(int64_t{share.index} * size(host) / share.of);
  }

 private:
  const Nodes& nodes_;
  const int32_t rank_;
  const std::vector<int32_t> sizes_;
  std::vector<int32_t> first_;  // rank of each host
};

}  // namespace ddhost::layers
