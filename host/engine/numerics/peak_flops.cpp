// SPDX-License-Identifier: Apache-2.0
#include "engine/numerics/peak_flops.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace ddhost {
namespace {

constexpr size_t kChains = 12;  // of dependent operations: enough to hide the latency of two units
constexpr int64_t kRounds = 50'000;

template <size_t kBytes>
struct Lanes {
  using Vector [[gnu::vector_size(kBytes)]] = float;
  static constexpr double kOperations = 2.0 * kChains * kBytes / sizeof(float);  // of a round
};

// The values stay small. Returns one of them, so that the work is not left out.
template <size_t kBytes>
[[gnu::always_inline]] inline float multiply_adds(float factor) {
  using Vector = typename Lanes<kBytes>::Vector;
  std::array<Vector, kChains> x{};
  const Vector a = Vector{} + factor, b = Vector{} + 1.0F;
  // Different values: equal chains would be computed once.
  for (size_t c = 0; c < kChains; ++c) x[c] = x[c] + factor * static_cast<float>(c + 1);
  for (int64_t round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (size_t c = 0; c < kChains; ++c) x[c] = x[c] * a + b;
  }
  Vector sum{};
  for (const Vector& v : x) sum += v;
  return sum[0];
}

float at_base(float factor) { return multiply_adds<16>(factor); }
#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] float at_avx2(float factor) { return multiply_adds<32>(factor); }
[[gnu::target("avx512f")]] float at_avx512(float factor) { return multiply_adds<64>(factor); }
#endif

// The best of several short runs, so that an interruption does not count.
double best_of_runs(float (*run)(float), double operations_of_a_round) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRuns = 30;
  double best = 0;
  volatile float factor = 0.5F, result = 0;  // unknown to the compiler
  for (int i = 0; i < kRuns; ++i) {
    const auto begin = Clock::now();
    result = run(factor);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::max(best, operations_of_a_round * static_cast<double>(kRounds) / seconds);
  }
  static_cast<void>(result);
  return best;
}

}  // namespace

double measured_peak_flops_per_s() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") != 0) return best_of_runs(at_avx512, Lanes<64>::kOperations);
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0)
    return best_of_runs(at_avx2, Lanes<32>::kOperations);
#endif
  return best_of_runs(at_base, Lanes<16>::kOperations);
}

}  // namespace ddhost
