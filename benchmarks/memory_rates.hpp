// SPDX-License-Identifier: Apache-2.0
//
// benchmarks/memory_rates.hpp: the rates of the memory of this machine at best, and from them the least time of a pass over
// arrays. Both directions of a bus may work at once, and a pass that writes where it has read needs no read of its own for the
// write. So neither a read nor a copy alone is the limit of an optimizer's pass.
#pragma once

#include <sched.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "machine.hpp"
#include "pages.hpp"

namespace ddhost::bench {

// Bytes/s of all ranks together, while all of them do the same. What is read and what is written count, as STREAM counts.
struct MemoryRates {
  double read = 0, write = 0, copy = 0;
  double triad = 0;   // a = b + s c
  double update = 0;  // as an optimizer: reads four arrays, and writes three of them in place

  // Seconds of a pass of all ranks: no less than its reads take alone, its writes alone, or both at the best mixed rate. A
  // mixed pass may read or write faster than one that does nothing else, because it follows more arrays at once.
  [[nodiscard]] double seconds(double read_bytes, double written_bytes) const {
    const double reads = std::max({read, copy / 2, triad * 2 / 3, update * 16 / 28});
    const double writes = std::max({write, copy / 2, triad / 3, update * 12 / 28});
    return std::max({read_bytes / reads, written_bytes / writes,
                     (read_bytes + written_bytes) / std::max({read, write, copy, triad, update})});
  }
};

// Nanoseconds for an element that each rank updates as AdamW: parameter, two moments and gradient are read, all but the
// gradient written.
inline double update_ns(const MemoryRates& rates, int ranks) { return rates.seconds(16.0 * ranks, 12.0 * ranks) * 1e9; }

// The arrays of one rank, (numel) each, in pages of their own.
struct RateArrays {
  explicit RateArrays(uint64_t n)
      : memory{pages(n * sizeof(float)), pages(n * sizeof(float)), pages(n * sizeof(float)), pages(n * sizeof(float))},
        numel(n) {
    for (size_t i = 0; i < memory.size(); ++i) std::fill_n((*this)[i], n, 0.5F);
  }
  float* operator[](size_t i) const { return static_cast<float*>(memory[i].get()); }
  // At least four times the last-level cache for an array of all ranks; whole blocks of kLanes.
  static uint64_t numel_of(int ranks) {
    return std::max(4 * last_level_cache_bytes() / static_cast<uint64_t>(ranks), uint64_t{1} << 20) / sizeof(float) /
           kLanes * kLanes;
  }
  static constexpr uint64_t kLanes = 64;

  std::array<Pages, 4> memory;
  uint64_t numel;
};

namespace passes {

inline float read(const float* __restrict a, uint64_t numel) {
#if defined(__SSE__)
  constexpr uint64_t kSums = 8, kLanes = 4;
  __m128 sums[kSums] = {};
  for (uint64_t i = 0; i < numel; i += kSums * kLanes)
    for (uint64_t k = 0; k < kSums; ++k) sums[k] = _mm_add_ps(sums[k], _mm_load_ps(a + i + k * kLanes));
  __m128 sum = sums[0];
  for (uint64_t k = 1; k < kSums; ++k) sum = _mm_add_ps(sum, sums[k]);
  float lanes[kLanes];
  _mm_storeu_ps(lanes, sum);
  return lanes[0] + lanes[1] + lanes[2] + lanes[3];
#else
  return std::accumulate(a, a + numel, 0.0F);
#endif
}
// Past the caches, where the processor can: then nothing is read before it is overwritten.
inline void stream(float* __restrict a, const float* __restrict b, uint64_t numel) {
#if defined(__SSE__)
  for (uint64_t i = 0; i < numel; i += 4) _mm_stream_ps(a + i, b == nullptr ? _mm_set1_ps(1) : _mm_load_ps(b + i));
  _mm_sfence();
#else
  for (uint64_t i = 0; i < numel; ++i) a[i] = b == nullptr ? 1 : b[i];
#endif
}
inline void triad(float* __restrict a, const float* __restrict b, const float* __restrict c, uint64_t numel) {
  for (uint64_t i = 0; i < numel; i += RateArrays::kLanes)
    for (uint64_t lane = 0; lane < RateArrays::kLanes; ++lane) a[i + lane] = b[i + lane] + 3.0F * c[i + lane];
}
inline void update(float* __restrict p, const float* __restrict g, float* __restrict m, float* __restrict v,
                   uint64_t numel) {
  for (uint64_t i = 0; i < numel; i += RateArrays::kLanes)
    for (uint64_t lane = 0; lane < RateArrays::kLanes; ++lane) {
      const uint64_t at = i + lane;
      m[at] = 0.5F * (m[at] + g[at]);
      v[at] = 0.5F * (v[at] + g[at]);
      p[at] = 0.5F * (p[at] + m[at] * v[at]);
    }
}

}  // namespace passes

inline constexpr int kRateRounds = 7, kRatePasses = kRateRounds * 7;  // calls of `seconds`

// Called by each rank; there are no more of them than cores. `seconds(pass)` runs a pass at the same time on all ranks, and
// returns the time of the slowest. Of each kind of pass the fastest of the rounds counts, and of two ways the faster one.
template <class Seconds>
MemoryRates memory_rates(int ranks, const Seconds& seconds) {
  const RateArrays x(RateArrays::numel_of(ranks));
  volatile float keep = 0;
  MemoryRates best;
  const auto rate = [&](double& of, int bytes_of_element, const auto& pass) {
    of = std::max(of, static_cast<double>(x.numel) * bytes_of_element * ranks / seconds(pass));
  };
  for (int round = 0; round < kRateRounds; ++round) {
    rate(best.read, 4, [&] { keep = passes::read(x[0], x.numel); });
    rate(best.write, 4, [&] { std::fill_n(x[0], x.numel, 1.0F); });
    rate(best.write, 4, [&] { passes::stream(x[0], nullptr, x.numel); });
    rate(best.copy, 8, [&] { std::memcpy(x[0], x[1], x.numel * sizeof(float)); });
    rate(best.copy, 8, [&] { passes::stream(x[0], x[1], x.numel); });
    rate(best.triad, 12, [&] { passes::triad(x[0], x[1], x[2], x.numel); });
    rate(best.update, 28, [&] { passes::update(x[0], x[1], x[2], x[3], x.numel); });
  }
  static_cast<void>(keep);
  return best;
}

// Of as many threads as ranks, each on a core of its own, but no more than cores.
inline MemoryRates memory_rates_of_threads(int ranks) {
  const std::vector<int> cores = allowed_cores();
  ranks = std::min(ranks, static_cast<int>(cores.size()));
  std::barrier together(ranks);
  std::vector<double> taken(static_cast<size_t>(ranks));
  MemoryRates out;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&](int rank) {
    const cpu_set_t one = core_of(cores, rank);
    ::sched_setaffinity(0, sizeof one, &one);
    try {
      const MemoryRates mine = memory_rates(ranks, [&](const auto& pass) {
        together.arrive_and_wait();
        const auto begin = std::chrono::steady_clock::now();
        pass();
        taken[static_cast<size_t>(rank)] =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        together.arrive_and_wait();
        return *std::max_element(taken.begin(), taken.end());
      });
      if (rank == 0) out = mine;
    } catch (...) {
      together.arrive_and_drop();
      const std::scoped_lock lock(mutex);
      failure = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(work, rank);
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  return out;
}

}  // namespace ddhost::bench
