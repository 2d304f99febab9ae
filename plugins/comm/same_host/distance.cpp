// SPDX-License-Identifier: Apache-2.0
#include "distance.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace same_host {

#ifdef __SSE2__
int64_t PeerDistance::time_of(const void* line) {
  using Clock = std::chrono::steady_clock;
  const auto now = [] {  // all before has ended, and nothing after has begun
    _mm_lfence();
    const Clock::time_point time = Clock::now();
    _mm_lfence();
    return time;
  };
  const Clock::time_point first = now(), begin = now();
  static_cast<void>(*static_cast<const volatile std::byte*>(line));
  const Clock::time_point end = now();
  return std::chrono::duration_cast<std::chrono::nanoseconds>((end - begin) - (begin - first)).count();
}
#else
int64_t PeerDistance::time_of(const void*) { return 0; }
#endif

void PeerDistance::add(int64_t ns) {
  constexpr int64_t kFarNs = 90;
  constexpr uint64_t kLeast = 3;
  is_far_sample_[samples_++ % is_far_sample_.size()] = ns > kFarNs;
  const uint64_t n = std::min<uint64_t>(samples_, is_far_sample_.size());
  const auto far = static_cast<uint64_t>(std::count(is_far_sample_.begin(), is_far_sample_.end(), true));
  is_far_.store(n >= kLeast && 3 * far >= n, std::memory_order_relaxed);
}

void stage_bytes(std::byte* to, const std::byte* from, uint64_t n, bool bypasses_caches) {
  if (n == 0) return;
#ifdef __SSE2__
  constexpr uint64_t kVector = sizeof(__m128i);
  if (bypasses_caches && reinterpret_cast<uintptr_t>(to) % kVector == 0) {
    const uint64_t whole = n / kVector * kVector;
    for (uint64_t i = 0; i < whole; i += kVector)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    std::memcpy(to + whole, from + whole, n - whole);
    _mm_sfence();  // such stores are not ordered by the release of a mark
    return;
  }
#endif
  std::memcpy(to, from, n);
}

}  // namespace same_host
