// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/sent_bytes.hpp: the bytes that a rank sends in collectives, counted in one way for plans (ddh_plan.sent_bytes) and
// for counters (comm.sent_bytes). A byte counts once for each other rank that needs it, on the rank that has it. A sum
// is a reduce-scatter; a sum for all ranks is an all-gather more. So the numbers depend on the strategy alone, and not
// on the ways that a transport takes.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "ddh/sdk/structs.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

struct SentBytes {
  uint64_t all = 0;
  uint64_t between_nodes = 0;  // of all: to ranks on other nodes

  SentBytes& operator+=(const SentBytes& more) {
    all += more.all;
    between_nodes += more.between_nodes;
    return *this;
  }
  friend SentBytes operator*(uint64_t times, const SentBytes& sent) {
    return {times * sent.all, times * sent.between_nodes};
  }
  friend bool operator==(const SentBytes&, const SentBytes&) = default;
};

// The ranks of a group, as one of them sees them. By default it is alone.
class GroupRanks {
 public:
  GroupRanks() = default;
  // `ranks`: of the members in the world, ascending, so those of a node are neighbours. `me`: this rank's index among them.
  // `node_of`: of each rank of the world; null: there is one node.
  GroupRanks(const std::vector<int32_t>& ranks, size_t me, const int32_t* node_of)
      : size_(ranks.size()), me_(me), node_begin_(me), node_end_(me + 1) {
    const auto is_near = [&](size_t i) { return node_of == nullptr || node_of[ranks[i]] == node_of[ranks[me]]; };
    while (node_begin_ > 0 && is_near(node_begin_ - 1)) --node_begin_;
    while (node_end_ < size_ && is_near(node_end_)) ++node_end_;
  }
  // `count` ranks: first, first + stride, ...
  static GroupRanks strided(int32_t first, int32_t stride, int32_t count, int32_t me, const int32_t* node_of) {
    std::vector<int32_t> ranks;
    for (int32_t i = 0; i < count; ++i) ranks.push_back(first + i * stride);
    return {ranks, static_cast<size_t>(me), node_of};
  }

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] size_t me() const { return me_; }

  // Member i gets piece i, of numel[i] elements of `width` bytes; `total` is their sum.
  [[nodiscard]] SentBytes pieces(const uint64_t* numel, uint64_t total, uint64_t width) const {
    uint64_t stays_on_node = 0;
    for (size_t i = node_begin_; i < node_end_; ++i) stays_on_node += numel[i];
    return {(total - numel[me_]) * width, (total - stays_on_node) * width};
  }
  [[nodiscard]] SentBytes pieces(const std::vector<uint64_t>& numel, uint64_t width) const {
    return pieces(numel.data(), std::accumulate(numel.begin(), numel.end(), uint64_t{0}), width);
  }
  // Every other member gets the same bytes.
  [[nodiscard]] SentBytes to_each(uint64_t bytes) const {
    return {bytes * (size_ - 1), bytes * (size_ - (node_end_ - node_begin_))};
  }
  // A sum of `numel` elements for all members: each computes an even piece.
  [[nodiscard]] SentBytes all_reduce(uint64_t numel, uint64_t width) const {
    std::vector<uint64_t> even(size_, numel / size_);
    for (size_t i = 0; i < numel % size_; ++i) ++even[i];
    SentBytes out = pieces(even, width);
    out += to_each(even[me_] * width);
    return out;
  }
  [[nodiscard]] SentBytes to_one(size_t member, uint64_t bytes) const {
    const bool is_near = node_begin_ <= member && member < node_end_;
    return {member == me_ ? 0 : bytes, is_near ? 0 : bytes};
  }

 private:
  size_t size_ = 1, me_ = 0;
  size_t node_begin_ = 0, node_end_ = 1;  // the members on this rank's node
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
