// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/standin/nccl/board.hpp: the memory that the ranks of a communicator share: who has joined, how far each one is,
// and a mailbox from every rank to every other.
#pragma once

#include <atomic>
#include <cstdint>

#include "declarations.hpp"

namespace standin {

inline constexpr int kMostRanks = 8;
inline constexpr uint64_t kChunkBytes = 32768;

// One chunk of a message at a time.
struct Mailbox {
  std::atomic<uint64_t> written, read;  // chunks
  uint64_t message_bytes, chunk_bytes;
  int32_t kind;  // of the sender's call
  char data[kChunkBytes];
};

struct Member {
  std::atomic<uint32_t> joined, aborted, finalized;
  std::atomic<uint64_t> entered;  // number of the operation that its GPU has begun
  std::atomic<uint64_t> windows;  // registrations of windows that it has begun
  uint64_t window_bytes[2];       // of the last two, by number modulo 2
};

struct Board {
  Member members[kMostRanks];
  Mailbox mailboxes[kMostRanks][kMostRanks];  // [from][to]
};

// A new board, and the id by which other processes find it while this process lives.
nccl::UniqueId make_board();
// nullptr: the process that made it has ended.
Board* open_board(const nccl::UniqueId& id);
void close_board(Board* board);

}  // namespace standin
