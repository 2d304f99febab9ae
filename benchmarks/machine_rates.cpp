// SPDX-License-Identifier: Apache-2.0
//
// benchmarks/machine_rates.cpp: what the memory and the cores of this machine do at best, while as many threads as ranks are
// busy. GB/s of reads, writes, copies (bytes that are copied) and of the triad a = b + s c (bytes of all three arrays, as
// STREAM counts them); nanoseconds for a value to get from one core to another; the frequency. Buffers of all threads together
// take at least four times the last-level cache. Usage: machine_rates [--ranks 2]. Prints a JSON object. It needs an idle
// machine.
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "machine.hpp"
#include "pages.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using ddhost::bench::median;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// The calling thread.
void bind_to_core(const std::vector<int>& cores, int rank) {
  const cpu_set_t one = ddhost::bench::core_of(cores, rank);
  sched_setaffinity(0, sizeof one, &one);
}

// a, b, c: (numel) of this thread.
struct Arrays {
  float *a, *b, *c;
  uint64_t numel;
};
float read_all(const Arrays& x) {
  float sums[64] = {};
  for (uint64_t i = 0; i + 64 <= x.numel; i += 64)
    for (uint64_t lane = 0; lane < 64; ++lane) sums[lane] += x.b[i + lane];
  return sums[0];
}
float write_all(const Arrays& x) {
  std::fill_n(x.a, x.numel, 1.0F);
  return x.a[0];
}
float copy_all(const Arrays& x) {
  std::memcpy(x.a, x.b, x.numel * sizeof(float));
  return x.a[0];
}
float triad(const Arrays& x) {
  for (uint64_t i = 0; i < x.numel; ++i) x.a[i] = x.b[i] + 3.0F * x.c[i];
  return x.a[0];
}
struct Pass {
  const char* name;
  float (*run)(const Arrays&);
  int bytes;  // that count, of an element
};
constexpr std::array<Pass, 4> kPasses = {Pass{"read", read_all, 4}, Pass{"write", write_all, 4},
                                         Pass{"copy", copy_all, 4}, Pass{"triad", triad, 12}};

// GB/s of all threads together, by the slowest one; the median of the rounds.
std::array<double, kPasses.size()> memory_rates(const std::vector<int>& cores, int ranks) {
  constexpr int kRounds = 9;
  const uint64_t numel = 4 * ddhost::bench::last_level_cache_bytes() / static_cast<uint64_t>(ranks) / sizeof(float);
  std::array<std::vector<double>, kPasses.size()> rates;
  std::vector<double> seconds(static_cast<size_t>(ranks));
  std::barrier all(ranks);
  std::atomic<float> kept{0};
  const auto work = [&](int rank) {
    bind_to_core(cores, rank);
    const ddhost::bench::Pages pages = ddhost::bench::pages(3 * numel * sizeof(float));
    auto* const first = static_cast<float*>(pages.get());
    const Arrays x{first, first + numel, first + 2 * numel, numel};
    std::fill_n(first, 3 * numel, 0.5F);
    for (int round = 0; round < kRounds; ++round)
      for (size_t i = 0; i < kPasses.size(); ++i) {
        all.arrive_and_wait();
        const auto begin = Clock::now();
        kept.store(kPasses[i].run(x), std::memory_order_relaxed);
        seconds[static_cast<size_t>(rank)] = seconds_since(begin);
        all.arrive_and_wait();
        if (rank == 0)
          rates[i].push_back(static_cast<double>(numel) * kPasses[i].bytes * ranks /
                             *std::max_element(seconds.begin(), seconds.end()) / 1e9);
      }
  };
  std::vector<std::thread> others;
  for (int rank = 1; rank < ranks; ++rank) others.emplace_back(work, rank);
  work(0);
  for (std::thread& other : others) other.join();
  std::array<double, kPasses.size()> out{};
  for (size_t i = 0; i < out.size(); ++i) out[i] = median(rates[i]);
  return out;
}

// Nanoseconds until a core sees what another one has written: half of a round trip, the median of rounds of 20 ms at most.
double handoff_ns(const std::vector<int>& cores) {
  constexpr int kRounds = 9;
  constexpr uint32_t kMostTrips = 100'000, kEnd = UINT32_MAX;
  struct alignas(128) Line {
    std::atomic<uint32_t> value{0};
  };
  Line there, back;
  std::vector<double> all;
  for (int round = 0; round < kRounds; ++round) {
    there.value = back.value = 0;
    std::thread other([&] {
      bind_to_core(cores, 1);
      for (uint32_t seen = 0; seen != kEnd;) {
        const uint32_t now = there.value.load(std::memory_order_acquire);
        if (now == seen) continue;
        seen = now;
        back.value.store(now, std::memory_order_release);
      }
    });
    bind_to_core(cores, 0);
    uint32_t trips = 0;
    const auto begin = Clock::now();
    while (trips < kMostTrips && (trips % 64 != 0 || seconds_since(begin) < 0.02)) {  // other work may delay each trip
      there.value.store(++trips, std::memory_order_release);
      while (back.value.load(std::memory_order_acquire) != trips) {
      }
    }
    all.push_back(seconds_since(begin) / trips / 2 * 1e9);
    there.value.store(kEnd, std::memory_order_release);
    other.join();
  }
  return median(all);
}

}  // namespace

int main(int argc, char** argv) {
  int ranks = 2;
  if (argc == 3 && std::string(argv[1]) == "--ranks") ranks = std::atoi(argv[2]);
  if ((argc != 1 && argc != 3) || ranks < 1 || ranks > 1024) {
    std::fprintf(stderr, "machine_rates takes --ranks N, from 1 to 1024, or nothing\n");
    return 2;
  }
  try {
    const std::vector<int> cores = ddhost::bench::allowed_cores();
    const auto rates = memory_rates(cores, ranks);
    const double mhz = ddhost::bench::mean_mhz();  // the cores were busy a moment ago
    std::printf("{\"ranks\": %d", ranks);
    for (size_t i = 0; i < rates.size(); ++i) std::printf(", \"%s_gb_per_s\": %.2f", kPasses[i].name, rates[i]);
    // With one core the other thread would wait for its turn.
    if (cores.size() > 1) std::printf(", \"handoff_ns\": %.1f", handoff_ns(cores));
    if (mhz > 0) std::printf(", \"mhz\": %.0f", mhz);
    std::printf("}\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "machine_rates: %s\n", error.what());
    return 1;
  }
  return 0;
}
