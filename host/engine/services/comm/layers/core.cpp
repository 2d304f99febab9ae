// SPDX-License-Identifier: Apache-2.0
#include "engine/services/comm/layers/core.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "ddh/sdk/collective.hpp"

namespace ddhost::layers {
namespace {

// Long enough for the rate of a link; the buffers of a host with many ranks stay small.
constexpr uint64_t kMostChunk = uint64_t{1} << 20, kLeastChunk = uint64_t{1} << 16, kMostPacked = uint64_t{1} << 23;
// Two chunks that go from host to host, and two each for what a step sends and receives.
constexpr uint64_t kChunksOfScratch = 6;

std::vector<int32_t> members_of(const Places& places) {
  if (places.are_equal()) return places.column();
  std::vector<int32_t> all(static_cast<size_t>(places.world_size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

std::vector<uint64_t> even_counts(uint64_t count, int32_t n) {
  const auto parts = static_cast<uint64_t>(n), share = (count + parts - 1) / parts;
  std::vector<uint64_t> out;
  for (uint64_t i = 0; i < parts; ++i) out.push_back(std::min(count, (i + 1) * share) - std::min(count, i * share));
  return out;
}

uint64_t most_handled(const Places& places, const std::vector<Piece>& pieces, bool of_other_hosts) {
  uint64_t most = 0;
  for (int32_t host = 0; host < places.n_hosts(); ++host) {
    std::vector<uint64_t> handled(static_cast<size_t>(places.size(host)));
    for (const Piece& piece : pieces) {
      if (piece.count == 0 || (of_other_hosts && places.host_of(piece.owner) == host)) continue;
      most = std::max(most, ++handled[static_cast<size_t>(places.handler(host, piece.share) - places.first(host))]);
    }
  }
  return most;
}

uint64_t Core::chunk_bytes(const Places& places) {
  const uint64_t share = kMostPacked / static_cast<uint64_t>(places.largest()) / 4096 * 4096;
  return std::clamp(share, kLeastChunk, kMostChunk);
}
uint64_t Core::pack_bytes(const Places& places) {
  return static_cast<uint64_t>(places.size(places.host())) * chunk_bytes(places);
}
uint64_t Core::scratch_bytes(const Places& places) {
  return pack_bytes(places) + kChunksOfScratch * chunk_bytes(places);
}

Core::Core(const Places& places, const Layer& inside, const Layer& between, std::byte* pack)
    : places_(places),
      inside_(inside),
      chunk_(chunk_bytes(places)),
      pack_(pack),
      scratch_(std::make_unique_for_overwrite<std::byte[]>(kChunksOfScratch * chunk_)),
      exchange_(between, members_of(places), scratch_.get() + 2 * chunk_, scratch_.get() + 4 * chunk_, 2 * chunk_) {}

std::vector<Piece> Core::pieces(const std::vector<uint64_t>& counts) const {
  std::vector<Piece> out;
  uint64_t at = 0;
  for (int32_t rank = 0; rank < places_.world_size(); ++rank) {
    const uint64_t count = counts[static_cast<size_t>(rank)];
    out.push_back({at, count, places_.share_of(rank), rank});
    at += count;
  }
  return out;
}

std::vector<Piece> Core::even_pieces(uint64_t count) const {
  const int32_t n = places_.largest();
  const std::vector<uint64_t> counts = even_counts(count, n);
  std::vector<Piece> out;
  uint64_t at = 0;
  for (int32_t i = 0; i < n; ++i) {
    out.push_back({at, counts[static_cast<size_t>(i)], {i, n}, -1});
    at += out.back().count;
  }
  return out;
}

void Core::share_on_host(std::byte* all, const std::vector<Piece>& pieces, int32_t host, const std::byte* mine,
                         const char* label) {
  const int32_t here = places_.host(), first = places_.first(here);
  std::vector<uint64_t> counts(static_cast<size_t>(places_.size(here)));
  uint64_t begin = UINT64_MAX, my_begin = 0, total = 0;
  for (const Piece& piece : pieces) {
    if (host >= 0 && places_.host_of(piece.owner) != host) continue;
    begin = std::min(begin, piece.offset);
    const int32_t handler = places_.handler(here, piece.share);
    if (handler < places_.rank()) my_begin += piece.count;
    counts[static_cast<size_t>(handler - first)] += piece.count;
    total += piece.count;
  }
  if (total == 0) return;
  ddh_coll c = ddh::collective(DDH_U8, label);
  c.recv = all + begin;
  c.send = mine != nullptr ? mine : all + begin + my_begin;
  c.counts = counts.data();
  inside_.call(&ddh_comm_backend_api::all_gather, "all_gather", c);
}

// Chunks of each piece go to the ranks that handle it on other hosts; then each host shares what its ranks have.
void Core::all_gather(const std::byte* mine, std::byte* all, const std::vector<Piece>& pieces, const char* label) {
  const int32_t here = places_.host(), me = places_.rank();
  const Piece& own = pieces[static_cast<size_t>(me)];
  uint64_t largest = 0;
  for (const Piece& piece : pieces) largest = std::max(largest, piece.count);
  const uint64_t copies = std::max({uint64_t{1}, most_handled(places_, pieces, /*of_other_hosts=*/true),
                                    static_cast<uint64_t>(places_.n_hosts() - 1)});
  const uint64_t step = std::max<uint64_t>(2 * chunk_ / copies, 1);
  const auto part = [&](const Piece& piece, uint64_t at) {
    return at >= piece.count ? 0 : std::min(step, piece.count - at);
  };
  for (uint64_t at = 0; at < largest; at += step) {
    for (int32_t host = 0; host < places_.n_hosts(); ++host)
      if (host != here)
        exchange_.send(places_.handler(host, own.share), part_of(mine, at, part(own, at)), part(own, at));
    for (const Piece& piece : pieces)
      if (!places_.is_here(piece.owner) && places_.handler(here, piece.share) == me)
        exchange_.receive(piece.owner, part_of(all, piece.offset + at, part(piece, at)), part(piece, at));
    run_exchange(label);
  }
  for (int32_t host = 0; host < places_.n_hosts(); ++host)
    share_on_host(all, pieces, host, host == here ? mine : nullptr, label);
}

// The root sends to one rank of each other host, and these share it on their hosts.
void Core::broadcast(const std::byte* from, std::byte* to, uint64_t bytes, int32_t root, const char* label) {
  const int32_t here = places_.host(), me = places_.rank();
  const Share share = places_.share_of(root);
  const uint64_t step = std::max<uint64_t>(2 * chunk_ / static_cast<uint64_t>(places_.n_hosts()), 1);
  const bool takes_part = !places_.are_equal() || places_.local(me) == share.index;  // others are in other columns
  for (uint64_t at = 0; takes_part && at < bytes; at += step) {
    const uint64_t n = std::min(step, bytes - at);
    if (me == root) {
      for (int32_t host = 0; host < places_.n_hosts(); ++host)
        if (host != here) exchange_.send(places_.handler(host, share), from + at, n);
    } else if (!places_.is_here(root) && places_.handler(here, share) == me) {
      exchange_.receive(root, to + at, n);
    }
    run_exchange(label);
  }
  ddh_coll c = ddh::collective(DDH_U8, label);
  c.root = places_.handler(here, share) - places_.first(here);
  c.send = me == root ? from : to;
  c.recv = to;
  c.count = bytes;
  inside_.call(&ddh_comm_backend_api::broadcast, "broadcast", c);
}

}  // namespace ddhost::layers
