// SPDX-License-Identifier: Apache-2.0
//
// engine/services/comm/layers/core.hpp: collectives of all ranks over two transports: one between the ranks of a host, and one
// between hosts. The bytes between hosts do not grow with the number of ranks of a host. Large data goes in chunks, so memory
// is bounded.
//
// Each sum is the left fold of ddh/service/comm.h, bit for bit:
//   chain    host 0 sums its ranks and sends the partial sum on; host 1 goes on from it, and so on; the last host sends the
//            sums back. At every step each host has another chunk, so all hosts are busy.
//   blocks   where a block of the fold is a host: each host sums its block, and the owners of the pieces add the blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/services/comm/layers/exchange.hpp"
#include "engine/services/comm/layers/places.hpp"

namespace ddhost::layers {

// In which order hosts take part in sums of F32. kFlat: the transport between hosts connects all ranks for that.
enum class SumOrder { kFlat, kChain, kBlocks };

// A part of the data, in elements or bytes. `owner`: the rank that needs the sum; -1: all ranks do.
struct Piece {
  uint64_t offset, count;
  Share share;
  int32_t owner;
};

// Where a part of `count` elements begins, which is nowhere if it has none: a rank without data may have no memory for it.
template <class T>
[[nodiscard]] T* part_of(T* base, uint64_t offset, uint64_t count) {
  return count == 0 ? nullptr : base + offset;
}

// One sum of F32. `recv`, `initial`: of this rank's piece; of all pieces if these have no owners.
struct SumCall {
  const float* send;
  float* recv;
  const float* initial;  // or nullptr
  const char* label;
  std::vector<Piece> pieces;
};

// `count` elements in `n` parts that are as equal as possible, the last ones shorter.
[[nodiscard]] std::vector<uint64_t> even_counts(uint64_t count, int32_t n);
// The most pieces that one rank handles. `of_other_hosts`: only pieces whose owners are not on its host count.
[[nodiscard]] uint64_t most_handled(const Places& places, const std::vector<Piece>& pieces, bool of_other_hosts);

class Core {
 public:
  // Bytes that the buffers take on this rank.
  static uint64_t scratch_bytes(const Places& places);
  // `pack`: memory of pack_bytes, best in pages that the ranks of the host share. `between`: the group of this rank's column
  // if hosts are equal, else of all ranks.
  static uint64_t pack_bytes(const Places& places);
  Core(const Places& places, const Layer& inside, const Layer& between, std::byte* pack);

  void chain(const SumCall& call);
  void blocks(const SumCall& call);
  // The pieces of all ranks, in bytes, go to all ranks.
  void all_gather(const std::byte* mine, std::byte* all, const std::vector<Piece>& pieces, const char* label);
  void broadcast(const std::byte* from, std::byte* to, uint64_t bytes, int32_t root, const char* label);

  // That this rank has sent to other hosts.
  [[nodiscard]] uint64_t sent_bytes() const { return sent_; }
  // The pieces of ranks, by their counts; or as many equal pieces as the largest host has ranks, without owners.
  [[nodiscard]] std::vector<Piece> pieces(const std::vector<uint64_t>& counts) const;
  [[nodiscard]] std::vector<Piece> even_pieces(uint64_t count) const;

 private:
  class Chain;
  class Chunks;

  static uint64_t chunk_bytes(const Places& places);
  [[nodiscard]] std::byte* carry(uint64_t step) const { return scratch_.get() + step % 2 * chunk_; }
  // Every piece of this host, from its handler to all ranks of the host. `host`: whose pieces, -1: those without an owner.
  void share_on_host(std::byte* all, const std::vector<Piece>& pieces, int32_t host, const std::byte* mine,
                     const char* label);
  void run_exchange(const char* label) { sent_ += exchange_.run(label); }

  const Places places_;
  const Layer inside_;
  const uint64_t chunk_;  // bytes that a rank handles at once
  std::byte* const pack_;
  const std::unique_ptr<std::byte[]> scratch_;
  Exchange exchange_;
  uint64_t sent_ = 0;
};

}  // namespace ddhost::layers
