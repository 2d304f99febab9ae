// SPDX-License-Identifier: Apache-2.0
#include "distance.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace same_host {
namespace {

// Nothing before is still under way, and nothing after has begun.
void fence() {
#ifdef __SSE2__
  _mm_lfence();
#endif
}

}  // namespace

void PeerDistance::sample(const void* line) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kFarNs = 130;  // with about 30 of the clock and the fences
  fence();
  const auto begin = Clock::now();
  fence();
  static_cast<void>(*static_cast<const volatile std::byte*>(line));
  fence();
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
  is_far_sample_[samples_++ % is_far_sample_.size()] = ns > kFarNs;
  const size_t n = std::min(samples_, is_far_sample_.size());
  const auto far = static_cast<size_t>(std::count(is_far_sample_.begin(), is_far_sample_.end(), true));
  is_far_ = 3 * far >= n;
}

void stage_bytes(std::byte* to, const std::byte* from, uint64_t n, bool bypasses_caches) {
  if (n == 0) return;
#ifdef __SSE2__
  constexpr uint64_t kLarge = uint64_t{16} << 10, kVector = sizeof(__m128i);
  if (bypasses_caches && n >= kLarge && reinterpret_cast<uintptr_t>(to) % kVector == 0) {
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
