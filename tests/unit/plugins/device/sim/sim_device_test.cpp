// SPDX-License-Identifier: Apache-2.0
//
// The device sim: its memory, the order of its streams, and what its flat operations give.
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "ddh/sdk/kernels/lowp.hpp"
#include "fixtures/harness/cpu_device.hpp"
#include "fixtures/harness/throws.hpp"
#include "unit/plugins/device/sim/sim_fixture.hpp"

using namespace ddhost::test;
using Catch::Contains;

TEST_CASE("the device has a capacity, and released memory no longer counts", "[sim]") {
  SimDevice sim({.capacity_bytes = 1000});
  float* const first = sim.allocate("first", 150);
  CHECK_THAT(sentence_of([&] { sim.allocate("second", 101); }), Contains("1000 bytes") && Contains("600 are in use"));
  CHECK_NOTHROW(sim.allocate("pinned", 1000, DDH_MEM_PINNED));  // the host's, which is not limited
  sim.release(first);
  CHECK_NOTHROW(sim.allocate("second", 101));

  ddh_device_info info{};
  info.struct_size = sizeof info;
  ddh::call(sim.table->info, nullptr, sim.context, &info);
  CHECK(info.total_bytes == 1000);
  CHECK(info.free_bytes == 1000 - 404);
}

TEST_CASE("new memory is zero if zeros are requested, else NaN in every format", "[sim]") {
  SimDevice sim;
  for (const float value : sim.read(sim.allocate("zeros", 100), 100)) CHECK(value == 0);
  const std::vector<float> fresh = sim.read(sim.allocate("fresh", 100, DDH_MEM_DEVICE, 0), 100);
  for (const float value : fresh) CHECK(std::isnan(value));
  std::vector<uint16_t> halves(200);
  std::memcpy(halves.data(), fresh.data(), 400);
  for (const uint16_t half : halves) {
    CHECK(std::isnan(ddh::Bf16::to_f32(half)));
    CHECK(std::isnan(ddh::F16::to_f32(half)));
  }
}

TEST_CASE("a call returns before its work, which is done in the order of the stream", "[sim]") {
  SimDevice sim({.delay_us = 20'000});
  float* const x = sim.allocate("x", 4);
  std::atomic<int> ran = 0;
  const auto begin = std::chrono::steady_clock::now();
  sim.run(nullptr, ddh::Accesses().writes(x, 16), "first", [&] { x[0] = static_cast<float>(++ran); });
  sim.run(nullptr, ddh::Accesses().writes(x, 16), "second", [&] { x[1] = static_cast<float>(++ran); });
  CHECK(ran == 0);
  const std::vector<float> values = sim.read(x, 4);
  CHECK(ran == 2);
  CHECK(values[0] == 1);
  CHECK(values[1] == 2);
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(60));  // two and the copy
}

TEST_CASE("streams run side by side, and an event makes one wait for the other", "[sim]") {
  SimDevice sim;
  ddh_stream* const slow = sim.stream("slow");
  std::atomic<bool> go = false, slow_done = false, seen = false, early = false;
  sim.run(slow, {}, "wait for the test", [&] {
    while (!go) std::this_thread::yield();
    slow_done = true;
  });
  ddh_event* const event = sim.event();
  sim.wait(nullptr, event);  // never recorded: nothing to wait for
  sim.run(nullptr, {}, "before the event", [&] { early = !slow_done; });
  sim.synchronize(nullptr);
  CHECK(early);
  sim.record(event, slow);
  sim.wait(nullptr, event);
  sim.run(nullptr, {}, "behind the event", [&] { seen = slow_done.load(); });
  go = true;
  sim.synchronize(nullptr);
  CHECK(seen);
}

TEST_CASE("a stream that ends has done all its work", "[sim]") {
  SimDevice sim({.delay_us = 1000, .jitter_us = 1000, .seed = 3});
  float* const x = sim.allocate("x", 64);
  ddh_stream* const stream = sim.stream("short");
  for (int i = 1; i <= 5; ++i) sim.fill(x, 64, i, stream);
  sim.table->stream->destroy(sim.context, stream);
  CHECK(sim.read(x, 64)[63] == 5);
}

TEST_CASE("an error of work on a stream is returned by synchronize and by every later call", "[sim]") {
  SimDevice sim;
  sim.run(nullptr, {}, "fails", [] { ddh::fail(DDH_DATA_LOSS, "the disk is on fire"); });
  CHECK(sentence_of([&] { sim.synchronize(nullptr); }) == "the disk is on fire");
  CHECK(sentence_of([&] { sim.fill(sim.allocate("x", 1), 1, 0, nullptr); }) == "the disk is on fire");
}

namespace {

// Calls one operation on the CPU's table and on the device's, and compares `bytes` of what it left at `dst`.
template <class Operation>
bool same_on_both(SimDevice& sim, const std::vector<float>& initial, const std::vector<float>& src, Operation&& op) {
  std::vector<float> expected = initial;
  op(*ddhost::test::cpu_device().flatops, ddhost::test::cpu_context(), expected.data(), src.data());
  float* const dst = sim.allocate("dst", initial.size());
  float* const on_device = sim.allocate("src", src.size());
  sim.copy(dst, DDH_MEM_DEVICE, initial.data(), DDH_MEM_HOST, initial.size(), nullptr);
  sim.copy(on_device, DDH_MEM_DEVICE, src.data(), DDH_MEM_HOST, src.size(), nullptr);
  op(*sim.table->flatops, sim.context, dst, on_device);
  const std::vector<float> got = sim.read(dst, initial.size());
  return std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)) == 0;
}

std::vector<float> numbers(size_t numel, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 100);
  std::vector<float> x(numel);
  for (float& value : x) value = normal(random);
  x[1] = 1e-41F, x[2] = -0.0F, x[3] = std::numeric_limits<float>::infinity();
  return x;
}

}  // namespace

TEST_CASE("flat operations give the bits of the CPU", "[sim]") {
  SimDevice sim;
  const std::vector<float> a = numbers(1037, 1), b = numbers(1037, 2);
  const uint64_t n = a.size();
  CHECK(same_on_both(sim, a, b, [n](const ddh_flatops_api& f, void* h, float* dst, const float* src) {
    ddh::call(f.add, h, dst, src, n, nullptr);
  }));
  CHECK(same_on_both(sim, a, b, [n](const ddh_flatops_api& f, void* h, float* dst, const float*) {
    ddh::call(f.scale, h, dst, n, 1.0 / 3, nullptr);
  }));
  for (const int32_t dtype : {DDH_F32, DDH_BF16, DDH_F16}) {
    CHECK(same_on_both(sim, a, b, [n, dtype](const ddh_flatops_api& f, void* h, float* dst, const float* src) {
      ddh::call(f.cast, h, dst, dtype, src, DDH_F32, n, nullptr);
      ddh::call(f.cast, h, dst + n / 2 + 1, DDH_F32, src, dtype, n / 4, nullptr);
      ddh::call(f.fill, h, dst, dtype, uint64_t{5}, 0.1, nullptr);
    }));
  }
  CHECK_THAT(sentence_of([&] { ddh::call(sim.table->flatops->fill, sim.context, nullptr, DDH_I32, 1u, 2.0, nullptr); }),
             Contains("fill has no dtype"));
}
