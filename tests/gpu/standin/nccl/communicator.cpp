// SPDX-License-Identifier: Apache-2.0
#include "nccl/communicator.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "driver/for_nccl.hpp"

namespace standin {

namespace {

struct Lost {
  int rank = -1;
  uint64_t after = 0;
};
Lost lost() {
  Lost out;
  const char* const given = std::getenv("DDHOST_STANDIN_NCCL_LOST");
  unsigned long long after = 0;
  if (given == nullptr || std::sscanf(given, "%d:%llu", &out.rank, &after) != 2) return {};
  out.after = after;
  return out;
}

struct Launch {
  ncclComm* comm;
  std::unique_ptr<Operation> operation;
};

void run_on_stream(void* arg) {
  const std::unique_ptr<Launch> launch(static_cast<Launch*>(arg));
  ncclComm& comm = *launch->comm;
  const Lost gone = lost();
  while (gone.rank >= 0 && launch->operation->number > gone.after && !comm.aborting) sched_yield();
  if (comm.aborting) return;
  const Seat seat{comm.board, comm.rank, comm.size, &comm.aborting};
  if (!execute(seat, *launch->operation)) comm.failed = true;
}

}  // namespace
}  // namespace standin

using namespace standin;

ncclComm::ncclComm(Board* shared, int n_ranks, int my_rank)
    : board(shared),
      size(n_ranks),
      rank(my_rank),
      device(ddhost_standin_device_now()),
      windows(shared, n_ranks, my_rank) {
  board->members[rank].joined = 1;
  serve(this);
}

bool ncclComm::all(std::atomic<uint32_t> Member::*flag) const {
  return std::all_of(board->members, board->members + size, [&](const Member& m) { return (m.*flag).load() != 0; });
}

bool ncclComm::is_lost_to_peers() const {
  const Lost gone = lost();
  return gone.rank >= 0 && gone.rank != rank && queued_ > gone.after;
}

nccl::Result ncclComm::poll() {
  if (failed) return nccl::kInvalidUsage;
  if (!all(&Member::joined)) return nccl::kInProgress;
  if (finalizing) return all(&Member::finalized) ? nccl::kSuccess : nccl::kInProgress;
  const bool peer_aborted =
      std::any_of(board->members, board->members + size, [](const Member& m) { return m.aborted.load() != 0; });
  if (peer_aborted || is_lost_to_peers()) return nccl::kRemoteError;
  if (const nccl::Result registered_now = windows.settle(); registered_now != nccl::kSuccess) return registered_now;
  if (pending.empty()) return nccl::kSuccess;
  if (++polls < 2) return nccl::kInProgress;
  polls = 0;
  for (Pending& work : pending) queue(std::move(work));
  pending.clear();
  return nccl::kSuccess;
}

void ncclComm::queue(Pending work) {
  const std::lock_guard lock(mutex_);
  work.operation->number = ++queued_;
  work.operation->device = device;
  if (last_ == nullptr) cuEventCreate(&last_, CU_EVENT_DISABLE_TIMING);
  CUevent done = nullptr;
  auto launch = std::make_unique<Launch>(Launch{this, std::move(work.operation)});
  const bool queued = cuStreamWaitEvent(work.stream, last_, 0) == CUDA_SUCCESS &&
                      cuLaunchHostFunc(work.stream, run_on_stream, launch.get()) == CUDA_SUCCESS;
  if (!queued) {
    failed = true;
    return;
  }
  (void)launch.release();
  cuEventRecord(last_, work.stream);
  cuEventCreate(&done, CU_EVENT_DISABLE_TIMING);
  cuEventRecord(done, work.stream);
  events_[queued_] = done;
}

void ncclComm::complete() {
  if (last_ != nullptr) ddhost_standin_complete(last_);
}

bool ncclComm::knows(const void* p, uint64_t bytes) const {
  const auto* const begin = static_cast<const char*>(p);
  auto block = registered.upper_bound(begin);
  if (block != registered.begin() && begin + bytes <= std::prev(block)->first + std::prev(block)->second) return true;
  return windows.holds(p, bytes);
}

// A peer that waits for a while gets what it waits for, and no more: other work stays late.
void ncclComm::serve_peers() {
  constexpr int kPatience = 3;  // polls
  uint64_t wanted = 0;
  for (int r = 0; r < size; ++r)
    if (r != rank) wanted = std::max(wanted, board->members[r].entered.load());
  const bool waits = wanted > board->members[rank].entered.load();
  waits_ = waits && wanted == wanted_ ? waits_ + 1 : 0;
  wanted_ = wanted;
  CUevent done = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const uint64_t begun = board->members[rank].entered.load();
    while (!events_.empty() && events_.begin()->first < begun) {
      cuEventDestroy(events_.begin()->second);
      events_.erase(events_.begin());
    }
    const auto found = events_.find(wanted);
    if (waits_ >= kPatience && found != events_.end()) done = found->second;
  }
  if (done != nullptr) ddhost_standin_complete(done);
}
