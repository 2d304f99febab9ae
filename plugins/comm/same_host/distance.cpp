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
  constexpr uint32_t kFarNs = 130;  // with about 30 of the clock and the fences
  fence();
  const auto begin = Clock::now();
  fence();
  static_cast<void>(*static_cast<const volatile std::byte*>(line));
  fence();
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
  last_ns_[samples_++ % last_ns_.size()] = static_cast<uint32_t>(std::clamp<int64_t>(ns, 0, UINT32_MAX));
  std::array<uint32_t, 7> sorted = last_ns_;
  const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(std::min(samples_, sorted.size()));
  const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
  std::nth_element(sorted.begin(), middle, end);
  is_far_ = *middle > kFarNs;
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
