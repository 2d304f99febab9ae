// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/standin/nccl/work.hpp: one operation of a communicator, as work on a stream. Every collective is a set of
// messages between pairs of ranks; a reduction sums what has come, the last rank first, so that its bits differ from
// sums in rank order.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "nccl/board.hpp"

namespace standin {

enum Kind : int32_t { kAllGather = 1, kBroadcast, kAllReduce, kReduceScatter, kSendRecv };

struct Message {
  int peer;
  bool sends;
  uint64_t address;  // in memory that the GPU reaches
  uint64_t bytes;
  Kind kind;
};
// dst = the reduction of `count` elements at `own` and at what the other ranks have sent.
struct Reduction {
  uint64_t own, dst, count;
  std::vector<uint64_t> own_offset_of;  // bytes into `own` of the piece for each rank
  nccl::DataType type;
  nccl::RedOp op;
  Kind kind;
};
struct Operation {
  uint64_t number = 0;
  int device = 0;
  std::vector<Message> messages;
  std::vector<Reduction> reductions;
};

// The communicator's side of an operation.
struct Seat {
  Board* board;
  int rank, size;
  const std::atomic<bool>* aborting;
};

uint64_t bytes_of(nccl::DataType type);
// Waits for the peers. Returns early where the communicator is aborted. False: the ranks' calls don't match, or memory
// is in no block; a sentence is printed.
bool execute(const Seat& seat, const Operation& operation);

}  // namespace standin
