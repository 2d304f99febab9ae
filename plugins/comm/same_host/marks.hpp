// SPDX-License-Identifier: Apache-2.0
//
// A mark: a counter in shared memory that its owner raises and others wait for. Raising releases what was written
// before, a satisfied wait acquires it. A waiter spins briefly, then sleeps on a futex.
#pragma once

#include <atomic>
#include <cstdint>

namespace same_host {

// One cache line, so that raising a mark disturbs nobody else's.
struct alignas(64) MarkLine {
  std::atomic<uint64_t> value;
  std::atomic<uint32_t> waiters;
};
static_assert(sizeof(MarkLine) == 64);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

// Raises the mark to `value`, never down, and wakes its waiters.
void mark_raise(MarkLine& line, uint64_t value);

// Wakes the waiters of a mark that was not raised, so that they look at the fault flags.
void mark_wake(MarkLine& line);

// How long to wait awake. A rank that shares its core must not spin: it holds up the very peer it waits for.
struct SpinPolicy {
  int64_t nanoseconds = 0;

  static SpinPolicy choose(int64_t spin_us, int32_t world_size);
};

// Spins; true when the mark reached `value` meanwhile.
bool mark_spin(const MarkLine& line, uint64_t value, SpinPolicy policy);

// Sleeps until the mark moves, somebody wakes it, or 100 ms have passed. True when it reached `value`.
bool mark_sleep(MarkLine& line, uint64_t value);

inline bool mark_reached(const MarkLine& line, uint64_t value) {
  return line.value.load(std::memory_order_acquire) >= value;
}

// Waits for the mark. `find_fault` runs after every sleep without success; when it is true, and the mark was not raised
// meanwhile (a peer may raise it and end), `fail` is called, which throws.
template <class FindFault, class Fail>
void mark_wait(MarkLine& line, uint64_t value, SpinPolicy policy, FindFault&& find_fault, Fail&& fail) {
  if (mark_reached(line, value) || mark_spin(line, value, policy)) return;
  while (!mark_sleep(line, value)) {
    if (find_fault() && !mark_reached(line, value)) fail();
  }
}

}  // namespace same_host
