// SPDX-License-Identifier: Apache-2.0
//
// launch/progress.cpp: shared anonymous pages; only lock-free atomics and plain bytes published by them.
#include "launch/progress.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {
constexpr size_t kPage = 4096;
}  // namespace

// The first page.
struct Progress::World {
  std::atomic<uint32_t> stop{0};
  std::atomic<uint32_t> failures{0};
};

// One page per rank, so that ranks never share a cache line.
struct alignas(kPage) Progress::Rank {
  std::atomic<int64_t> step{0};
  std::atomic<uint32_t> claimed{0};  // the first failure of the rank takes the slot
  std::atomic<uint32_t> order{0};    // not 0: the slot is complete
  uint32_t caused_by_peer = 0;
  char sentence[kPage - 64] = {};
};

Progress::Progress(int world_size) : world_size_(world_size) {
  static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);
  static_assert(sizeof(Rank) == kPage && sizeof(World) <= kPage);
  bytes_ = kPage * (static_cast<size_t>(world_size) + 1);
  pages_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (pages_ == MAP_FAILED)
    ddh::fail(DDH_RESOURCE_EXHAUSTED, "no memory for the progress of ", world_size, " ranks: ", std::strerror(errno));
  new (pages_) World;
  for (int rank = 0; rank < world_size; ++rank) new (&at(rank)) Rank;
}

Progress::~Progress() { ::munmap(pages_, bytes_); }

Progress::Rank& Progress::at(int rank) const {
  if (rank < 0 || rank >= world_size_) ddh::fail(DDH_OUT_OF_RANGE, "rank ", rank, " of ", world_size_);
  return *reinterpret_cast<Rank*>(static_cast<char*>(pages_) + kPage * (static_cast<size_t>(rank) + 1));
}

Progress::World& Progress::world() const { return *static_cast<World*>(pages_); }

void Progress::set_step(int rank, int64_t step) { at(rank).step.store(step, std::memory_order_relaxed); }
int64_t Progress::step(int rank) const { return at(rank).step.load(std::memory_order_relaxed); }

void Progress::set_failure(int rank, const std::string& sentence, bool caused_by_peer) {
  Rank& slot = at(rank);
  if (slot.claimed.exchange(1) != 0) return;
  const size_t bytes = std::min(sentence.size(), sizeof slot.sentence - 1);
  std::memcpy(slot.sentence, sentence.data(), bytes);
  slot.caused_by_peer = caused_by_peer ? 1 : 0;
  slot.order.store(world().failures.fetch_add(1) + 1, std::memory_order_release);
}

Progress::Failure Progress::failure(int rank) const {
  const Rank& slot = at(rank);
  const uint32_t order = slot.order.load(std::memory_order_acquire);
  if (order == 0) return {};
  return {slot.sentence, slot.caused_by_peer != 0, order};
}

void Progress::request_stop() { world().stop.store(1, std::memory_order_relaxed); }
bool Progress::stop_requested() const { return world().stop.load(std::memory_order_relaxed) != 0; }

}  // namespace ddhost
