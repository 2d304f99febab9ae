// SPDX-License-Identifier: Apache-2.0
//
// benchmarks/machine_rates.cpp: what the memory and the cores of this machine do at best, while as many threads as ranks are
// busy: GB/s of reads, writes, copies, the triad a = b + s c, and updates in place, with all bytes that are read or written;
// nanoseconds for an element that each rank's optimizer updates; nanoseconds for a value to get from one core to another; the
// frequency. Cores of a virtual machine may move: those close to each other share one way to the memory. An array of all
// threads has at least four times the last-level cache. Usage: machine_rates [--ranks 2]. Prints a JSON object. It needs an
// idle machine.
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "machine.hpp"
#include "memory_rates.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using ddhost::bench::median;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// The calling thread.
void bind_to_core(const std::vector<int>& cores, int rank) {
  const cpu_set_t one = ddhost::bench::core_of(cores, rank);
  sched_setaffinity(0, sizeof one, &one);
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
  return ddhost::bench::run_program("machine_rates", "[--ranks 2]", argc, argv, [&] {
    if (argc != 1 && (argc != 3 || std::string(argv[1]) != "--ranks"))
      ddh::fail(DDH_INVALID_ARGUMENT, "it takes --ranks N or nothing, not '", argv[1], "'");
    const auto ranks = argc == 1 ? 2 : static_cast<int>(ddhost::bench::whole_number("--ranks", argv[2], 1, 1024));
    const std::vector<int> cores = ddhost::bench::allowed_cores();
    const ddhost::bench::MemoryRates rates = ddhost::bench::memory_rates_of_threads(ranks);
    const double mhz = ddhost::bench::mean_mhz();  // the cores were busy a moment ago
    std::printf("{\"ranks\": %d", ranks);
    for (const auto& [name, rate] : {std::pair{"read", rates.read},
                                     {"write", rates.write},
                                     {"copy", rates.copy},
                                     {"triad", rates.triad},
                                     {"update", rates.update}})
      std::printf(", \"%s_gb_per_s\": %.2f", name, rate / 1e9);
    std::printf(", \"update_ns\": %.4f", ddhost::bench::update_ns(rates, ranks));
    // With one core the other thread would wait for its turn.
    if (cores.size() > 1) std::printf(", \"handoff_ns\": %.1f", handoff_ns(cores));
    if (mhz > 0) std::printf(", \"mhz\": %.0f", mhz);
    std::printf("}\n");
    return 0;
  });
}
