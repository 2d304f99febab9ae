// SPDX-License-Identifier: Apache-2.0
#include "peak_flops.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "ddh/abi.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace cpu {
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

// A lane multiplies two pairs and adds both products to its sum.
constexpr double kBf16Operations = 2.0 * kChains * 32;
[[gnu::target("avx512f,avx512bf16")]] float at_avx512_bf16(float factor) {
  __m512 sums[kChains];  // std::array would drop its alignment
  for (size_t c = 0; c < kChains; ++c) sums[c] = _mm512_set1_ps(static_cast<float>(c));  // equal ones would be merged
  const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(factor), _mm512_set1_ps(factor));
  for (int64_t round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, a, a);
  }
  __m512 all = _mm512_setzero_ps();
  for (const __m512& sum : sums) all = _mm512_add_ps(all, sum);
  return _mm512_cvtss_f32(all);
}

// Products of tiles of 16 x 32 and 32 x 16, into four tiles of sums.
constexpr double kAmxOperations = 4 * 2.0 * 16 * 32 * 16;
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0;
  std::array<uint8_t, 14> reserved{};
  std::array<uint16_t, 16> row_bytes{64, 64, 64, 64, 64, 64};
  std::array<uint8_t, 16> rows{16, 16, 16, 16, 16, 16};
};
// A constant: GCC takes _tile_loadconfig for a read of 8 bytes, and left out the stores of a local variable's other 56.
constexpr TileShapes kTileShapes;
[[gnu::target("amx-tile,amx-bf16")]] float at_amx(float) {
  _tile_loadconfig(&kTileShapes);  // clears all tiles
  for (int64_t round = 0; round < kRounds; ++round) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_release();
  return 0;
}

// Linux saves tiles only for a process that has asked for them (Documentation/arch/x86/xstate.rst).
bool has_amx() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  constexpr unsigned kAmxBf16 = 1U << 22, kAmxTile = 1U << 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
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

PeakFlops measured_peak_flops(bool bf16) {
#if defined(__x86_64__)
  if (bf16 && has_amx()) return {best_of_runs(at_amx, kAmxOperations), DDH_BF16};
  if (bf16 && __builtin_cpu_supports("avx512bf16") != 0)
    return {best_of_runs(at_avx512_bf16, kBf16Operations), DDH_BF16};
  if (__builtin_cpu_supports("avx512f") != 0) return {best_of_runs(at_avx512, Lanes<64>::kOperations), DDH_F32};
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0)
    return {best_of_runs(at_avx2, Lanes<32>::kOperations), DDH_F32};
#endif
  return {best_of_runs(at_base, Lanes<16>::kOperations), DDH_F32};
}

}  // namespace cpu
