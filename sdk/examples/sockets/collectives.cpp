// SPDX-License-Identifier: Apache-2.0
#include "collectives.hpp"

#include "fold.hpp"

namespace sockets {
namespace {

constexpr uint64_t kShare = 16'384;  // elements that a rank folds in a round: bounds the scratch memory

constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                  "all_to_all", "send and recv",  "barrier"};
enum Kind : uint32_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll, kMessage, kBarrier };

const std::byte* bytes(const void* p) { return static_cast<const std::byte*>(p); }
std::byte* bytes(void* p) { return static_cast<std::byte*>(p); }

uint64_t element_bytes(const ddh_coll& c) {
  const uint64_t size = ddh_dtype_bytes(c.dtype);
  if (size == 0) ddh::fail(DDH_UNIMPLEMENTED, "sockets does not know dtype ", c.dtype, "; use one of ddh/abi.h");
  return size;
}

void exchange(Group& group, const ddh_coll& c, Kind kind, const std::vector<Part>& parts) {
  group.mesh.exchange({kNames[kind], c.label, kind, c.dtype}, parts);
}

void check_peer(const Group& group, const ddh_coll& c) {
  if (c.root < 0 || c.root >= group.mesh.size())
    ddh::fail(DDH_OUT_OF_RANGE, "rank ", c.root, " is not in a group of ", group.mesh.size(), "; ranks count from 0");
}

// Pieces of all ranks, one after the other, in elements.
struct Pieces {
  std::vector<uint64_t> numel, offset;
  uint64_t largest = 0;
  Pieces(const Group& group, uint64_t count, const uint64_t* counts) {
    uint64_t at = 0;
    for (int32_t r = 0; r < group.mesh.size(); ++r) {
      numel.push_back(counts != nullptr ? counts[r] : count);
      offset.push_back(std::exchange(at, at + numel.back()));
      largest = std::max(largest, numel.back());
    }
  }
};

// Every rank's piece to every rank.
void gather(Group& group, const ddh_coll& c, Kind kind, const Pieces& pieces, const std::byte* mine, std::byte* all) {
  const auto me = static_cast<size_t>(group.mesh.rank());
  std::vector<Part> parts;
  for (size_t r = 0; r < pieces.numel.size(); ++r)
    parts.push_back(
        {static_cast<int32_t>(r), mine, pieces.numel[me], all + pieces.offset[r] * element_bytes(c), pieces.numel[r]});
  exchange(group, c, kind, parts);
}

// Up to kShare elements of each piece, from `at` on, go to the rank whose piece it is. This rank folds those that come.
void fold_round(Group& group, const ddh_coll& c, Kind kind, const Pieces& pieces, uint64_t at, const std::byte* from,
                const void* initial, std::byte* sums) {
  const auto numel = [&](size_t r) { return std::min(kShare, pieces.numel[r] - std::min(at, pieces.numel[r])); };
  const uint64_t size = element_bytes(c), mine = numel(static_cast<size_t>(group.mesh.rank()));
  Fold folded{c.dtype, c.op, group.reduce_block, {}, initial, sums, mine};
  std::vector<Part> parts;
  for (size_t r = 0; r < pieces.numel.size(); ++r) {
    std::byte* const in = group.scratch.data() + r * kShare * size;
    parts.push_back({static_cast<int32_t>(r), from + (pieces.offset[r] + at) * size, numel(r), in, mine});
    folded.sources.push_back(in);
  }
  exchange(group, c, kind, parts);
  fold(folded);
}

const void* initial_at(const ddh_coll& c, uint64_t at) {
  return c.initial == nullptr ? nullptr : bytes(c.initial) + at * element_bytes(c);
}

}  // namespace

Group::Group(Mesh connections, uint32_t block)
    : mesh(std::move(connections)),
      reduce_block(block),
      scratch(static_cast<size_t>(mesh.size()) * kShare * sizeof(double)) {}

void all_reduce(Group& group, const ddh_coll& c) {
  require_foldable(c);
  const auto ranks = static_cast<uint64_t>(group.mesh.size()), me = static_cast<uint64_t>(group.mesh.rank());
  for (uint64_t at = 0; at < c.count; at += ranks * kShare) {
    const uint64_t numel = std::min(ranks * kShare, c.count - at), share = (numel + ranks - 1) / ranks;
    std::vector<uint64_t> counts;
    for (uint64_t r = 0; r < ranks; ++r)
      counts.push_back(std::min(numel, (r + 1) * share) - std::min(numel, r * share));
    const Pieces pieces(group, 0, counts.data());
    const uint64_t mine = at + pieces.offset[me], size = element_bytes(c);
    // What this rank contributes has left its buffers when fold_round returns, so `recv` may be `send`.
    fold_round(group, c, kAllReduce, pieces, 0, bytes(c.send) + at * size, initial_at(c, mine),
               bytes(c.recv) + mine * size);
    gather(group, c, kAllReduce, pieces, bytes(c.recv) + mine * size, bytes(c.recv) + at * size);
  }
}

void reduce_scatter(Group& group, const ddh_coll& c) {
  require_foldable(c);
  const Pieces pieces(group, c.count, c.counts);
  for (uint64_t at = 0; at < pieces.largest; at += kShare)
    fold_round(group, c, kReduceScatter, pieces, at, bytes(c.send), initial_at(c, at),
               bytes(c.recv) + at * element_bytes(c));
}

void all_gather(Group& group, const ddh_coll& c) {
  gather(group, c, kAllGather, Pieces(group, c.count, c.counts), bytes(c.send), bytes(c.recv));
}

void broadcast(Group& group, const ddh_coll& c) {
  check_peer(group, c);
  const uint64_t sent = group.mesh.rank() == c.root ? c.count : 0;
  std::vector<Part> parts;
  for (int32_t r = 0; r < group.mesh.size(); ++r)
    parts.push_back({r, bytes(c.send), sent, bytes(c.recv), r == c.root ? c.count : 0});
  exchange(group, c, kBroadcast, parts);
}

void all_to_all(Group& group, const ddh_coll& c) {
  if ((c.counts != nullptr) != (c.recv_counts != nullptr))
    ddh::fail(DDH_INVALID_ARGUMENT, "all_to_all has `counts` or `recv_counts` alone; give both, or neither");
  const Pieces sent(group, c.count, c.counts), got(group, c.count, c.recv_counts);
  const uint64_t size = element_bytes(c);
  std::vector<Part> parts;
  for (size_t r = 0; r < sent.numel.size(); ++r)
    parts.push_back({static_cast<int32_t>(r), bytes(c.send) + sent.offset[r] * size, sent.numel[r],
                     bytes(c.recv) + got.offset[r] * size, got.numel[r]});
  exchange(group, c, kAllToAll, parts);
}

void send(Group& group, const ddh_coll& c) {
  check_peer(group, c);
  exchange(group, c, kMessage, {{c.root, bytes(c.send), c.count, nullptr, 0}});
}

void recv(Group& group, const ddh_coll& c) {
  check_peer(group, c);
  exchange(group, c, kMessage, {{c.root, nullptr, 0, bytes(c.recv), c.count}});
}

void barrier(Group& group) {
  ddh_coll nothing{};
  nothing.dtype = DDH_U8;
  gather(group, nothing, kBarrier, Pieces(group, 0, nullptr), nullptr, nullptr);
}

}  // namespace sockets
