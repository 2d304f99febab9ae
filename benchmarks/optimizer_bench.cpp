// SPDX-License-Identifier: Apache-2.0
//
// benchmarks/optimizer_bench.cpp: time of kernels over 32M parameters on one core: the fused AdamW (28 bytes per
// parameter, 30 with a bf16 copy, 32 with two gradient sources; in one tensor, and in tensors of 4,096), the exact norm, and
// the sum over two ranks. Usage: optimizer_bench [numel]. Prints the median of 9 runs in ns per element, GB/s, and the floor:
// ns that this core's memory takes for the bytes that are read and written. What stays in caches has none.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "../tests/unit/plugins/optimizers/optimizer_fixture.hpp"
#include "arguments.hpp"
#include "engine/numerics/exact_norm.hpp"
#include "engine/numerics/kernels.hpp"
#include "memory_rates.hpp"

extern "C" ddh_rc ddh_entry_adamw(const ddh_host*, const ddh_module**, ddh_err*) noexcept;

namespace {

using ddhost::bench::MemoryRates;
using ddhost::bench::Pages;
using ddhost::bench::pages;

struct Bytes {  // of an element
  double read, written;
};

template <class Body>
void measure(const MemoryRates& rates, const char* name, uint64_t numel, Bytes bytes, Body&& body) {
  std::vector<double> ns;
  body();
  for (int run = 0; run < 9; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    ns.push_back(std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() /
                 static_cast<double>(numel));
  }
  std::sort(ns.begin(), ns.end());
  std::printf("%-28s %.3f ns/element (%.3f .. %.3f)  %.1f GB/s, floor %.3f\n", name, ns[4], ns.front(), ns.back(),
              (bytes.read + bytes.written) / ns[4], rates.seconds(bytes.read, bytes.written) * 1e9);
}

const ddhost::test::Numbers kAdamW = {{"betas", {0.9, 0.999}},
                                      {"eps", {1e-8}},
                                      {"weight_decay", {0.01}},
                                      {"decay_groups", {1}},
                                      {"bias_correction", {1}}};

// The same update where the parameters are many small tensors.
void measure_small_tensors(const MemoryRates& rates, uint64_t numel, ddh_optim_shard shard,
                           const ddh_step_block& block) {
  constexpr uint64_t kSmall = 4096;
  const uint64_t count = numel / kSmall;
  if (count == 0) return;
  const ddhost::test::OptimizerFixture adamw(ddh_entry_adamw, kAdamW, std::vector<uint64_t>(count, kSmall));
  std::vector<ddh_range> ranges;
  for (uint64_t i = 0; i < count; ++i) ranges.push_back({static_cast<int32_t>(i), 0, 0, i * kSmall, kSmall});
  shard.n_ranges = static_cast<uint32_t>(count);
  shard.ranges = ranges.data();
  const std::vector<int64_t> steps(count, 10);
  measure(rates, "adamw, tensors of 4,096", count * kSmall, {16, 12}, [&] { adamw.update(shard, block, steps); });
}

void run(uint64_t numel) {
  const MemoryRates rates = ddhost::bench::memory_rates_of_threads(1);
  const std::vector<Pages> memory = [&] {
    std::vector<Pages> all;
    for (int i = 0; i < 6; ++i) all.push_back(pages(numel * sizeof(float)));
    return all;
  }();
  const auto f32 = [&](size_t i) { return static_cast<float*>(memory[i].get()); };
  for (size_t i = 0; i < memory.size(); ++i) ddh::flat::fill(f32(i), DDH_F32, numel, i < 4 ? 0.01 : 0.0);
  const ddhost::test::OptimizerFixture adamw(ddh_entry_adamw, kAdamW, {numel});
  const ddh_range range{0, 0, 0, 0, numel};
  const float* grads[] = {f32(1), f32(4)};
  void* slots[] = {f32(2), f32(3)};
  ddh_optim_shard shard{};
  shard.struct_size = sizeof shard;
  shard.n_ranges = 1;
  shard.ranges = &range;
  shard.master = f32(0);
  shard.grads = grads;
  shard.n_grads = 1;
  shard.slots = slots;
  shard.n_slots = 2;
  measure(rates, "copy", numel, {4, 4}, [&] { std::memcpy(f32(5), f32(4), numel * sizeof(float)); });
  const auto block = ddhost::test::step_block(10, 1e-3);
  const auto update = [&] { adamw.update(shard, block, {10}); };
  measure(rates, "adamw fp32", numel, {16, 12}, update);
  measure_small_tensors(rates, numel, shard, block);
  shard.n_grads = 2;
  measure(rates, "adamw, two sources", numel, {20, 12}, update);
  shard.n_grads = 1;
  shard.lowp = f32(5);
  shard.lowp_dtype = DDH_BF16;
  measure(rates, "adamw, bf16 copy", numel, {16, 14}, update);
  ddhost::ExactSum sum;
  measure(rates, "exact norm", numel, {4, 0}, [&] { sum.add_range(f32(1), numel); });
  measure(rates, "exact norm in L2", numel, {0, 0}, [&] {
    for (uint64_t done = 0; done < numel; done += 65536) sum.add_range(f32(1), std::min<uint64_t>(65536, numel - done));
  });
  const float* srcs[] = {f32(1), f32(4)};
  float* dsts[] = {f32(1), f32(4)};
  const ddhost::kernels::SumSources sources{srcs, 2, 1};
  measure(rates, "sum of two", numel, {8, 4}, [&] { ddhost::kernels::ordered_sum(f32(5), sources, 0, numel, false); });
  measure(rates, "sum of two, both written", numel, {8, 8},
          [&] { ddhost::kernels::ordered_sum_to_all(dsts, 2, sources, 0, numel); });
  // As zero2 and zero3 sum gradients: a chunk in L1, for the norm, and its destination past the caches.
  alignas(64) std::array<float, ddhost::kernels::kSumChunkNumel> chunk;
  const auto streamed = [&](bool takes_norm) {
    const auto sum_chunk = [&](uint64_t begin, uint64_t n) {
      ddhost::kernels::ordered_sum_streamed(f32(5) + begin, chunk.data(), sources, begin, n);
      if (takes_norm) sum.add_range(chunk.data(), n);
    };
    ddhost::kernels::for_each_chunk(numel, sum_chunk, chunk.size());
    ddhost::kernels::end_streams();
  };
  measure(rates, "sum of two, streamed", numel, {8, 4}, [&] { streamed(false); });
  measure(rates, "streamed, and its norm", numel, {8, 4}, [&] { streamed(true); });
  // As zero1 does.
  measure(rates, "sum of two in place, its norm", numel, {8, 4}, [&] {
    const auto sum_chunk = [&](uint64_t begin, uint64_t n) {
      ddhost::kernels::ordered_sum(f32(1) + begin, sources, begin, n, false);
      sum.add_range(f32(1) + begin, n);
    };
    ddhost::kernels::for_each_chunk(numel, sum_chunk, chunk.size());
  });
}

}  // namespace

int main(int argc, char** argv) {
  return ddhost::bench::run_program("optimizer_bench", "[NUMEL=33554432]", argc, argv, [&] {
    if (argc > 2) ddh::fail(DDH_INVALID_ARGUMENT, "it takes one number of elements, not '", argv[2], "' too");
    constexpr int64_t kLeast = 1024, kMost = int64_t{1} << 32;
    run(argc == 1
            ? uint64_t{32} << 20
            : static_cast<uint64_t>(ddhost::bench::whole_number("the number of elements", argv[1], kLeast, kMost)));
    return 0;
  });
}
