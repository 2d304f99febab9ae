// SPDX-License-Identifier: Apache-2.0
//
// Marks on Linux: futexes, which work between threads and between processes.
#include "marks.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <ctime>

namespace same_host {
namespace {

// The futex word is the low half of the counter, which changes at every raise.
uint32_t* futex_word(MarkLine& line) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the futex word is the low half of the counter");
  return reinterpret_cast<uint32_t*>(&line.value);
}

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Counts a sleeper for as long as it may sleep.
class Sleeper {
 public:
  explicit Sleeper(MarkLine& line) : line_(line) { line_.waiters.fetch_add(1, std::memory_order_seq_cst); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ~Sleeper() { line_.waiters.fetch_sub(1, std::memory_order_seq_cst); }

 private:
  MarkLine& line_;
};

}  // namespace

void mark_raise(MarkLine& line, uint64_t value) {
  if (line.value.load(std::memory_order_relaxed) >= value) return;
  // seq_cst on both sides: either the raiser sees the sleeper's count, or the sleeper sees the new value.
  line.value.store(value, std::memory_order_seq_cst);
  if (line.waiters.load(std::memory_order_seq_cst) != 0) mark_wake(line);
}

void mark_wake(MarkLine& line) { syscall(SYS_futex, futex_word(line), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

SpinPolicy SpinPolicy::choose(int64_t spin_us, int32_t world_size) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const bool known = sched_getaffinity(0, sizeof cores, &cores) == 0;
  return {spin_us * 1000, known && world_size > CPU_COUNT(&cores)};
}

bool mark_spin(const MarkLine& line, uint64_t value, SpinPolicy policy) {
  if (policy.nanoseconds == 0) return mark_reached(line, value);
  const int round = policy.yields ? 1 : 16;  // a yield may take a time slice
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::nanoseconds(policy.nanoseconds);
  do {
    for (int i = 0; i < round; ++i) {
      if (mark_reached(line, value)) return true;
      if (policy.yields)
        sched_yield();
      else
        pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < give_up);
  return mark_reached(line, value);
}

bool mark_sleep(MarkLine& line, uint64_t value) {
  constexpr timespec kLongest{0, 100'000'000};
  const Sleeper sleeper(line);
  const uint64_t seen = line.value.load(std::memory_order_seq_cst);
  if (seen >= value) return true;
  syscall(SYS_futex, futex_word(line), FUTEX_WAIT, static_cast<uint32_t>(seen), &kLongest, nullptr, 0);
  return mark_reached(line, value);
}

}  // namespace same_host
