// SPDX-License-Identifier: Apache-2.0
//
// Tests of the test device: each kind of mistake that sim detects is made here on purpose, and must be reported in
// every run, for all delays. The correct version of each must pass.
#include <catch2/catch.hpp>

#include "fixtures/harness/throws.hpp"
#include "unit/plugins/device/sim/sim_fixture.hpp"

using namespace ddhost::test;
using Catch::Contains;

TEST_CASE("mistake: a missing event between two streams", "[sim]") {
  SimDevice sim(any_delay(7));
  float* const x = sim.allocate("weights", 64);
  float* const y = sim.allocate("sums", 64);
  ddh_stream* const compute = sim.stream("compute");
  sim.fill(x, 64, 1, compute);
  CHECK_THAT(sentence_of([&] { sim.add(y, x, 64, nullptr); }),
             Contains("'add' on stream 'default' reads 'weights'") &&
                 Contains("'fill' (operation 1 of stream 'compute') writes") && Contains("record an event"));
  ddh_event* const event = sim.event();
  sim.record(event, compute);
  sim.wait(nullptr, event);
  sim.add(y, x, 64, nullptr);
  CHECK(sim.read(y, 64)[63] == 1);
}

TEST_CASE("mistake: an event that was recorded too early", "[sim]") {
  SimDevice sim(any_delay(7));
  float* const x = sim.allocate("weights", 64);
  ddh_stream* const compute = sim.stream("compute");
  ddh_event* const event = sim.event();
  sim.record(event, compute);
  sim.fill(x, 64, 1, compute);
  sim.wait(nullptr, event);
  CHECK_THAT(sentence_of([&] { sim.read(x, 64); }), Contains("'copy' on stream 'default' reads 'weights'"));
}

TEST_CASE("mistake: memory is written while another stream still reads it", "[sim]") {
  SimDevice sim(any_delay(7));
  float* const x = sim.allocate("weights", 64);
  float* const y = sim.allocate("sums", 64);
  ddh_stream* const compute = sim.stream("compute");
  sim.add(y, x, 64, compute);
  CHECK_THAT(sentence_of([&] { sim.fill(x, 64, 0, nullptr); }),
             Contains("'fill' on stream 'default' writes 'weights'") && Contains("of stream 'compute') reads"));
  CHECK_NOTHROW(sim.read(x, 64));  // both read
}

TEST_CASE("streams may use different parts of one block without an event", "[sim]") {
  SimDevice sim(any_delay(7));
  float* const x = sim.allocate("buffer", 128);
  ddh_stream* const compute = sim.stream("compute");
  sim.fill(x, 64, 1, compute);
  sim.fill(x + 64, 64, 2, nullptr);
  CHECK_THAT(sentence_of([&] { sim.fill(x + 63, 2, 3, nullptr); }),
             Contains("'fill' (operation 1 of stream 'compute')"));
  CHECK_THAT(sentence_of([&] { sim.fill(x + 63, 2, 3, compute); }), Contains("of stream 'default')"));
}

TEST_CASE("order is carried over a chain of streams, and over the host", "[sim]") {
  SimDevice sim(any_delay(7));
  float* const x = sim.allocate("x", 64);
  ddh_stream* const a = sim.stream("a");
  ddh_stream* const b = sim.stream("b");
  ddh_event* const first = sim.event();
  ddh_event* const second = sim.event();
  sim.fill(x, 64, 1, a);
  sim.record(first, a);
  sim.wait(b, first);
  sim.record(second, b);
  sim.wait(nullptr, second);
  sim.fill(x, 64, 2, nullptr);
  sim.synchronize(nullptr);
  sim.fill(x, 64, 3, a);
  CHECK(sim.read(x, 64, a)[0] == 3);
}

TEST_CASE("mistake: host memory is read before the copy into it is done", "[sim]") {
  SimDevice sim(any_delay(7));
  float* const x = sim.allocate("weights", 64);
  float* const pinned = sim.allocate("staging", 64, DDH_MEM_PINNED);
  std::vector<float> plain(64);
  sim.fill(x, 64, 5, nullptr);
  for (float* const host : {pinned, plain.data()}) {
    const int32_t memory = host == pinned ? DDH_MEM_PINNED : DDH_MEM_HOST;
    sim.copy(host, memory, x, DDH_MEM_DEVICE, 64, nullptr);
    CHECK_THAT(sentence_of([&] { sim.touch(host, 64, "print"); }),
               Contains("'print' of the caller reads") &&
                   Contains(host == pinned ? "'staging'" : "'memory of the host'") && Contains("synchronize"));
    sim.synchronize(nullptr);
    CHECK_NOTHROW(sim.touch(host, 64, "print"));
    CHECK(host[63] == 5);
  }
}

TEST_CASE("mistake: the host accesses memory of the device", "[sim]") {
  SimDevice sim;
  float* const x = sim.allocate("weights", 64);
  CHECK_THAT(sentence_of([&] { sim.touch(x, 64, "print"); }), Contains("accesses 'weights', which is the device's"));
}

TEST_CASE("mistake: use after release", "[sim]") {
  SimDevice sim(any_delay(7));
  float* const x = sim.allocate("old weights", 64);
  float* const y = sim.allocate("sums", 64);
  sim.release(x);
  CHECK_THAT(sentence_of([&] { sim.add(y, x + 5, 1, nullptr); }),
             Contains("'add'") && Contains("uses 'old weights', which was released"));
  CHECK_THAT(sentence_of([&] { sim.read(x, 64); }), Contains("uses 'old weights', which was released"));
}

TEST_CASE("mistake: release while queued work uses the block", "[sim]") {
  SimDevice sim(any_delay(7));
  float* const x = sim.allocate("weights", 64);
  sim.fill(x, 64, 1, nullptr);
  sim.release(x);
  CHECK_THAT(sentence_of([&] { sim.synchronize(nullptr); }),
             Contains("'weights' is released while 'fill' (operation 1 of stream 'default') may still use it"));
  REQUIRE(sim.log().size() == 1);
}

TEST_CASE("mistake: a late write through a pointer that was not declared", "[sim]") {
  const bool evicted = GENERATE(false, true);
  SimDevice sim({.quarantine_bytes = evicted ? 256 : 1 << 16});
  float* const x = sim.allocate("weights", 64);
  sim.release(x);
  x[17] = 3;  // what a kernel with a stale pointer does
  if (evicted) sim.release(sim.allocate("the next to be released", 64));
  CHECK_THAT(sentence_of([&] { sim.synchronize(nullptr); }), Contains("'weights' was written after it was released"));
}

TEST_CASE("a late write that no further check finds is found when the device is closed", "[sim]") {
  SimDevice sim;
  float* const x = sim.allocate("weights", 64);
  sim.release(x);
  x[63] = 3;
  sim.close();
  REQUIRE(sim.log().size() == 1);
  CHECK_THAT(sim.log()[0], Contains("'weights' was written after it was released"));
}

TEST_CASE("mistake: a copy in the wrong direction", "[sim]") {
  SimDevice sim;
  float* const x = sim.allocate("weights", 64);
  float* const pinned = sim.allocate("staging", 64, DDH_MEM_PINNED);
  CHECK_THAT(sentence_of([&] { sim.copy(pinned, DDH_MEM_DEVICE, x, DDH_MEM_HOST, 64, nullptr); }),
             Contains("'staging', which lies in the host's memory") && Contains("direction"));
  CHECK_THAT(sentence_of([&] { sim.copy(pinned, DDH_MEM_PINNED, x, DDH_MEM_HOST, 64, nullptr); }),
             Contains("from the host's memory was given 'weights', which lies in DDH_MEM_DEVICE"));
  CHECK_NOTHROW(sim.copy(pinned, DDH_MEM_PINNED, x, DDH_MEM_DEVICE, 64, nullptr));
}

TEST_CASE("mistake: a flat operation on memory that the device can't reach", "[sim]") {
  SimDevice sim;
  std::vector<float> plain(64);
  CHECK_THAT(sentence_of([&] { sim.fill(plain.data(), 64, 0, nullptr); }),
             Contains("'fill' was given memory of the host"));
  CHECK_NOTHROW(sim.fill(sim.allocate("staging", 64, DDH_MEM_PINNED), 64, 0, nullptr));
}

TEST_CASE("mistake: work beyond the end of a block", "[sim]") {
  SimDevice sim;
  float* const x = sim.allocate("weights", 64);
  CHECK_THAT(sentence_of([&] { sim.fill(x + 60, 5, 0, nullptr); }), Contains("4 bytes beyond the end of 'weights'"));
}

TEST_CASE("work that is refused never runs, and what follows does", "[sim]") {
  SimDevice sim;
  float* const x = sim.allocate("weights", 64);
  ddh_stream* const other = sim.stream("other");
  sim.fill(x, 64, 1, other);
  bool ran = false;
  CHECK_THROWS(sim.run(nullptr, ddh::Accesses().reads(x, 4), "print", [&] { ran = true; }));
  CHECK(sim.read(x, 64, other)[0] == 1);
  CHECK_FALSE(ran);
}

TEST_CASE("without device.check mistakes are not reported", "[sim]") {
  SimDevice sim({.delay_us = 20'000, .check = false});
  float* const x = sim.allocate("weights", 64);
  ddh_stream* const other = sim.stream("other");
  sim.fill(x, 64, 1, other);
  CHECK_NOTHROW(sim.fill(x, 64, 2, nullptr));
  sim.release(x);  // waits for both, so that the poison comes last
  CHECK_NOTHROW(sim.synchronize(nullptr));
  CHECK(sim.log().empty());
}
