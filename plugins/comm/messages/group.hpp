// SPDX-License-Identifier: Apache-2.0
//
// group.hpp: the collectives of ddh/service/comm.h between the ranks of a group, made of messages.
//
// A reduction sends each piece to the rank that owns it, which folds the contributions in the order of ranks. all_reduce then
// sends the sums to all. Large pieces go in chunks: while one is folded, the next is on its way. So N ranks send
// 2 (N-1)/N of the bytes each, as a ring does.
//
// Each call begins with a frame from each rank to each other one. It says which call this is, so that ranks that make
// different calls notice it, and carries the data if that is small. The receives of large data are posted, and its sends begun,
// beside the frame, because some engines send only once the receiver has asked.
#pragma once

#include <string>
#include <vector>

#include "links.hpp"

namespace messages {

// Which collective a rank is in.
struct Call {
  const char* name;   // "all_gather"
  const char* label;  // of ddh_coll; may be NULL
  uint32_t kind;      // a number for each name
  int32_t dtype;
};

// What goes to one rank of the group and what comes from it.
struct Part {
  int32_t peer;
  const std::byte* out;
  uint64_t out_bytes;
  std::byte* in;
  uint64_t in_bytes;
};

// Pieces of all ranks, one after the other, in bytes.
struct Pieces {
  std::vector<uint64_t> bytes, offset;
  uint64_t largest = 0;
};

class Group {
 public:
  struct Member {
    std::string name;                  // of the group
    std::vector<int32_t> world_ranks;  // ascending
    int32_t rank;                      // this rank's place among them
    uint32_t reduce_block;             // ranks
  };
  // `links` of a group of one rank may be null.
  Group(Member member, std::unique_ptr<Links> links);

  void all_reduce(const ddh_coll& c);
  void reduce_scatter(const ddh_coll& c);
  void all_gather(const ddh_coll& c);
  void broadcast(const ddh_coll& c);
  void all_to_all(const ddh_coll& c);
  void send(const ddh_coll& c);
  void receive(const ddh_coll& c);
  void barrier();

  [[nodiscard]] int32_t rank() const { return member_.rank; }
  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(member_.world_ranks.size()); }
  [[nodiscard]] int32_t world_rank(int32_t peer) const { return member_.world_ranks[static_cast<size_t>(peer)]; }
  // Bytes that a group of `size` ranks takes on each of them.
  [[nodiscard]] static uint64_t bytes(uint32_t size);
  void end() noexcept {
    if (links_ != nullptr) links_->end();
  }

 private:
  struct Header {
    uint32_t kind;
    int32_t dtype;
    uint64_t bytes;  // that follow, in the frame or after it
  };
  using Messages = std::vector<std::unique_ptr<Message>>;
  // The frames of a call between this rank and another one.
  struct Pair {
    std::vector<std::byte> out, in;
  };

  // Where a reduction takes and leaves its values.
  struct Fold {
    Call call;
    int32_t op;
    const Pieces& pieces;
    const std::byte* from;     // all pieces
    const std::byte* initial;  // of this rank's piece; may be NULL
    std::byte* sums;           // of this rank's piece
    std::byte* all;            // the sums of all pieces go here; NULL: they stay with their owners
  };

  // Sends and receives all parts at once. Both ranks of a pair name each other.
  void exchange(const Call& call, const std::vector<Part>& parts);
  [[nodiscard]] bool is_inline(uint64_t bytes) const { return sizeof(Header) + bytes <= frame_; }
  // Returns the frame that comes from the same rank.
  [[nodiscard]] std::unique_ptr<Message> send_frame(const Call& call, const Part& part, Messages& sent);
  // What follows the header. Error: the other rank makes another call or has another size.
  const std::byte* receive_frame(const Call& call, const Part& part, Message& coming);
  void copy_own(const Call& call, const Part& part) const;
  void check(const Call& call, const Part& part, const Header& header) const;
  void gather(const Call& call, const Pieces& pieces, const std::byte* mine, std::byte* all);
  void fold(const Fold& f);
  void fold_small(const ddh_coll& c, const Call& call, uint64_t bytes);
  void start_receives(const Fold& f, uint64_t chunk, Messages& received);
  void start_sends(const Fold& f, uint64_t chunk, Messages& sent);
  void fold_chunk(const Fold& f, uint64_t chunk);
  void share_chunk(const Fold& f, uint64_t chunk, Messages& shared);
  void reduce(const Call& call, int32_t op, const std::vector<const void*>& sources, const void* initial, void* sums,
              uint64_t bytes) const;
  [[nodiscard]] uint64_t chunk_bytes(const Pieces& pieces, size_t rank, uint64_t chunk) const;
  [[nodiscard]] std::byte* scratch(uint64_t chunk, size_t rank);
  [[nodiscard]] Pieces pieces(uint64_t count, const uint64_t* counts, int32_t dtype) const;
  [[nodiscard]] std::vector<Part> parts_of(const Pieces& out, const std::byte* from, const Pieces& in,
                                           std::byte* to) const;
  void require_peer(int32_t rank) const;

  const Member member_;
  const std::unique_ptr<Links> links_;
  const uint64_t chunk_;            // bytes of a piece that are folded at once
  const uint64_t frame_;            // bytes of the longest frame
  std::vector<std::byte> scratch_;  // two chunks from each other rank
  std::vector<Pair> pairs_;         // one for each rank
};

}  // namespace messages
