// SPDX-License-Identifier: Apache-2.0
//
// A mark: a counter in shared memory that its owner raises and others wait for. Raising is a release, a satisfied wait
// is an acquire. A waiter spins briefly, or yields its core where ranks share one, then sleeps on a futex.
#pragma once

#include <atomic>
#include <cstdint>

namespace same_host {

// One cache line, to avoid false sharing between marks.
struct alignas(64) MarkLine {
  std::atomic<uint64_t> value;
  std::atomic<uint32_t> waiters;
};
static_assert(sizeof(MarkLine) == 64);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

// Raises the mark to `value` and wakes its waiters. A mark never decreases.
void mark_raise(MarkLine& line, uint64_t value);

// Wakes the waiters of a mark that was not raised, so that they look at the fault flags.
void mark_wake(MarkLine& line);

// The time to spin. A rank that shares its core gives it to another rank meanwhile, because that may be the peer it waits for.
struct SpinPolicy {
  int64_t nanoseconds = 0;
  bool yields = false;

  static SpinPolicy choose(int64_t spin_us, int32_t world_size);  // all ranks of this host
};

// Spins; true when the mark reached `value` meanwhile.
bool mark_spin(const MarkLine& line, uint64_t value, SpinPolicy policy);

// Sleeps until the mark changes, a wake-up comes, or 100 ms have passed. True if the mark reached `value`.
bool mark_sleep(MarkLine& line, uint64_t value);

inline bool mark_reached(const MarkLine& line, uint64_t value) {
  return line.value.load(std::memory_order_acquire) >= value;
}

// Waits for the mark. `find_fault` runs after every unsuccessful sleep. If it returns true and the mark was still not
// raised (a peer may raise it and then end), `fail` is called, which throws.
template <class FindFault, class Fail>
void mark_wait(MarkLine& line, uint64_t value, SpinPolicy policy, FindFault&& find_fault, Fail&& fail) {
  if (mark_reached(line, value) || mark_spin(line, value, policy)) return;
  while (!mark_sleep(line, value)) {
    if (find_fault() && !mark_reached(line, value)) fail();
  }
}

}  // namespace same_host
