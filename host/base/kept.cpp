// SPDX-License-Identifier: Apache-2.0
#include "base/kept.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "ddh/sdk/kernels/counter_rng.hpp"

namespace ddhost {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"order", "norm", "checks", "guards", "metrics"};

// One bit for each Kept.
uint32_t read_left_out() {
  const char* const given = std::getenv("DDHOST_LEAVE_OUT");
  const std::string names = given == nullptr ? "," : "," + std::string(given) + ",";
  uint32_t bits = 0;
  for (size_t i = 0; i < kNames.size(); ++i)
    if (names.find("," + std::string(kNames[i]) + ",") != std::string::npos) bits |= 1U << i;
  return bits;
}

const bool is_left_out_always = std::getenv("DDHOST_LEAVE_OUT_ALWAYS") != nullptr;
std::atomic<bool> is_left_out_now{is_left_out_always};

// Steps 2 k and 2 k + 1 are a pair. A fixed pattern would take what differs from step to step anyway for its cost.
bool draws(int64_t step) {
  const auto pair = static_cast<uint64_t>(step) / 2;
  return ((ddh::mix64(pair + ddh::kMixStep) ^ static_cast<uint64_t>(step)) & 1U) == 0;
}

}  // namespace

bool keeps(Kept part) {
  static const uint32_t left_out = read_left_out();
  return !is_left_out_now.load(std::memory_order_relaxed) || (left_out >> static_cast<uint32_t>(part) & 1U) == 0;
}

void note_step(int64_t step) {
  const bool is_left_out = is_left_out_always || draws(step);
  is_left_out_now.store(is_left_out, std::memory_order_relaxed);
  static const char* const path = std::getenv("DDHOST_STEP_TIMES");
  if (path == nullptr) return;
  static std::ofstream out(std::string(path) + "." + std::to_string(::getpid()));
  out << step << ' ' << std::chrono::steady_clock::now().time_since_epoch().count() << ' ' << is_left_out << '\n'
      << std::flush;
}

}  // namespace ddhost
