// SPDX-License-Identifier: Apache-2.0
//
// benchmarks/machine.hpp: the machine that a benchmark runs on, and how much of its time others took.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "ddh/sdk/plugin.hpp"

namespace ddhost::bench {

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

inline uint64_t last_level_cache_bytes() {
  constexpr uint64_t kUnknown = uint64_t{32} << 20;
  uint64_t most = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    uint64_t size = 0;
    char unit = ' ';
    if (!(file >> size)) continue;
    file >> unit;
    most = std::max(most, unit == 'K' ? size << 10 : unit == 'M' ? size << 20 : size);
  }
  if (most > 0) return most;
  const long of_system = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  return of_system > 0 ? static_cast<uint64_t>(of_system) : kUnknown;
}

inline std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

// Of the calling thread; a thread begins with those of the one that starts it.
inline std::vector<int> allowed_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0)
    ddh::fail(DDH_FAILED_PRECONDITION,
              "the cores of this process are not known, so its threads can't be bound to them");
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  return cores;
}
// One core for each rank; ranks take turns if there are fewer cores.
inline cpu_set_t core_of(const std::vector<int>& cores, int rank) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cores[static_cast<size_t>(rank) % cores.size()], &one);
  return one;
}

// Of all cores now; 0: the system does not say.
inline double mean_mhz() {
  std::ifstream file("/proc/cpuinfo");
  double sum = 0;
  int cores = 0;
  for (std::string line; std::getline(file, line);)
    if (line.rfind("cpu MHz", 0) == 0) {
      sum += std::atof(line.c_str() + line.find(':') + 1);
      ++cores;
    }
  return cores > 0 ? sum / cores : 0;
}

// Time of all cores since the start, in ticks: that a virtual machine's host gave to others, and all.
struct Steal {
  uint64_t stolen = 0, all = 0;

  static Steal now() {
    Steal out;
    std::ifstream file("/proc/stat");
    std::string line;
    std::getline(file, line);
    std::istringstream fields(line.substr(line.find(' ')));
    uint64_t value = 0;
    for (int field = 0; field < 8 && fields >> value; ++field) {  // user nice system idle iowait irq softirq steal
      out.all += value;
      if (field == 7) out.stolen = value;
    }
    return out;
  }
  // Percent since `before`.
  [[nodiscard]] double percent_since(const Steal& before) const {
    return all > before.all
               ? 100.0 * static_cast<double>(stolen - before.stolen) / static_cast<double>(all - before.all)
               : 0;
  }
};
inline constexpr double kMostSteal = 5;  // percent; a row with more is marked

struct TimedCalls {
  double us;            // of a call
  uint64_t last_index;  // that a call was given
};

// The time of a collective's call, from as many calls as take about 20 ms, but at most 10,000. The first calls make links,
// staging and pages: one for each of `n_buffers`, which calls take in turn. us_of_calls(first, n): the mean time of the calls
// first to first + n - 1, on the slowest rank.
constexpr uint64_t kMostFirstCalls = 64;
template <class UsOfCalls>
TimedCalls timed_calls(uint64_t n_buffers, uint64_t bytes, UsOfCalls&& us_of_calls) {
  constexpr double kSampleUs = 20'000, kMostCalls = 10'000;
  const uint64_t n_first = std::clamp<uint64_t>(n_buffers, 1, kMostFirstCalls);
  static_cast<void>(us_of_calls(uint64_t{0}, n_first));
  const uint64_t n_second = std::clamp<uint64_t>((4 << 20) / bytes, 1, kMostFirstCalls);
  const double us = us_of_calls(n_first, n_second);
  const auto n = static_cast<uint64_t>(std::clamp(kSampleUs / us, 1.0, kMostCalls));
  const uint64_t first = n_first + n_second;
  return {us_of_calls(first, n), first + n - 1};
}

}  // namespace ddhost::bench
