// SPDX-License-Identifier: Apache-2.0
//
// tests/gpu/standin/nccl/communicator.hpp: a communicator of the stand-in for NCCL. Calls don't block: they are queued when
// they are polled, and until then nothing has happened. Operations of one communicator run in the order of their calls,
// also on different streams. Operations of different communicators are ordered by their streams and events only.
//
// The environment says what it pretends:
//   DDHOST_STANDIN_NCCL_VERSION   its version (22809)
//   DDHOST_STANDIN_NCCL_NO_WINDOWS  set: it makes no symmetric windows between these GPUs
//   DDHOST_STANDIN_NCCL_NO_BUFFERS  set: it registers no memory
//   DDHOST_STANDIN_NCCL_STRICT    set: it refuses collectives and sends of memory that is in no registration and in no
//                                 window. Receives are not refused: contributions to ordered sums are not registered
//   DDHOST_STANDIN_NCCL_LOST      "2:5": rank 2 is lost to the others after 5 operations: their work waits for ever, and
//                                 they see an error
//   DDHOST_STANDIN_NCCL_CALLS     a file that gets a line for each call of ncclCommInitRankConfig, with the settings that
//                                 reached it, and of ncclCommRegister; and one for each operation
//   DDHOST_STANDIN_IGNORES        "ncclGroupEnd": the call has no effect and says that all is well, so that the program
//                                 looks as if it lacked it; also ncclCommAbort, ncclCommDeregister,
//                                 ncclCommWindowRegister and ncclCommWindowDeregister
#pragma once

#include <cuda.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "nccl/windows.hpp"
#include "nccl/work.hpp"

struct ncclComm {
  ncclComm(standin::Board* shared, int n_ranks, int my_rank);
  ncclComm(const ncclComm&) = delete;
  ncclComm& operator=(const ncclComm&) = delete;

  standin::Board* const board;
  const int size, rank;
  const int device;
  std::atomic<bool> aborting{false}, failed{false};
  bool finalizing = false;
  std::map<const char*, uint64_t> registered;  // begin, bytes
  standin::Windows windows;

  // An operation that was called, and is queued at the second poll.
  struct Pending {
    std::unique_ptr<standin::Operation> operation;
    CUstream stream;
  };
  std::vector<Pending> pending;
  int polls = 0;

  nccl::Result poll();
  // Runs the operations that are queued.
  void complete();
  // Whether memory is in one registration or window.
  [[nodiscard]] bool knows(const void* p, uint64_t bytes) const;
  // For the thread that serves peers (progress.cpp): completes the operations that a peer waits for.
  void serve_peers();

 private:
  [[nodiscard]] bool all(std::atomic<uint32_t> standin::Member::*flag) const;
  [[nodiscard]] bool is_lost_to_peers() const;
  void queue(Pending work);

  std::mutex mutex_;        // of the members below
  CUevent last_ = nullptr;  // after the last operation
  std::atomic<uint64_t> queued_{0};
  std::map<uint64_t, CUevent> events_;  // of operations, by number
  uint64_t wanted_ = 0;
  int waits_ = 0;
};

namespace standin {

// The thread that serves the peers of all communicators: it runs work that a peer waits for, as a GPU would, while the
// rank itself is busy elsewhere.
void serve(ncclComm* comm);
void serve_no_more(ncclComm* comm);

}  // namespace standin
