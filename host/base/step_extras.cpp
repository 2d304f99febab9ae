// SPDX-License-Identifier: Apache-2.0
#include "base/step_extras.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"norm", "checks", "metrics"};
constexpr int64_t kBlock = 8;  // steps; what a rank does longer in one step may shorten its wait in the next

// One bit for each StepExtra.
uint32_t read_left_out() {
  const char* const given = std::getenv("DDHOST_LEAVE_OUT");
  std::istringstream names(given == nullptr ? "" : given);
  uint32_t bits = 0;
  for (std::string name; std::getline(names, name, ',');) {
    size_t i = 0;
    while (i < kNames.size() && kNames[i] != name) ++i;
    if (i == kNames.size())
      ddh::fail(DDH_INVALID_ARGUMENT, "DDHOST_LEAVE_OUT has '", name, "'; give norm, checks or metrics, with commas");
    bits |= 1U << i;
  }
  return bits;
}

// Blocks 2 k and 2 k + 1 are a pair. Every second pair has the other order, so what changes with the steps anyway cancels.
bool leaves_out(int64_t step) {
  const int64_t block = step / kBlock;
  return (block / 2 + block) % 2 == 1;
}

std::atomic<bool> is_left_out_now{false};

}  // namespace

bool step_includes(StepExtra extra) {
  static const uint32_t left_out = read_left_out();
  return !is_left_out_now.load(std::memory_order_relaxed) || (left_out >> static_cast<uint32_t>(extra) & 1U) == 0;
}

void record_step_begin(int64_t step) {
  const bool is_left_out = leaves_out(step);
  is_left_out_now.store(is_left_out, std::memory_order_relaxed);
  static const char* const path = std::getenv("DDHOST_STEP_TIMES");
  if (path == nullptr) return;
  static std::ofstream out(std::string(path) + "." + std::to_string(::getpid()));
  out << step << ' ' << std::chrono::steady_clock::now().time_since_epoch().count() << ' ' << is_left_out << '\n'
      << std::flush;
}

}  // namespace ddhost
