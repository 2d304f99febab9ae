// SPDX-License-Identifier: Apache-2.0
//
// Sums that a transport of messages makes while the rank computes (DDH_REDUCE_LATER). The transport is one of a single rank; a
// test says when its sums end.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <span>
#include <thread>

#include "base/clock.hpp"
#include "engine/services/comm/comm.hpp"
#include "engine/services/memory/windows.hpp"
#include "fixtures/harness/cpu_device.hpp"
#include "launch/progress.hpp"

using namespace ddhost;
using namespace ddhost::test;

namespace {

constexpr uint64_t kSumNumel = 64;

struct OneRank {
  std::atomic<bool> go{false};  // no sum ends before
  std::atomic<int> begun{0}, sums{0};
  bool fails = false;
};

// Until it is true, or a test that is wrong has taken long.
template <class Condition>
bool comes(Condition&& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}
OneRank& one_rank(ddh_inst* inst) { return *reinterpret_cast<OneRank*>(inst); }

ddh_comm_backend_api one_rank_backend() {
  ddh_comm_backend_api t{};
  t.struct_size = sizeof t;
  t.world = [](ddh_inst* i) noexcept { return reinterpret_cast<ddh_group*>(i); };
  t.group_info = [](ddh_inst*, ddh_group*, int32_t* rank, int32_t* size, uint32_t* caps, ddh_err*) noexcept -> ddh_rc {
    *rank = 0;
    *size = 1;
    *caps = DDH_COMM_ORDERED_SUM | DDH_COMM_INITIAL;
    return DDH_OK;
  };
  t.all_gather = [](ddh_inst*, const ddh_coll* c, ddh_err*) noexcept -> ddh_rc {
    std::memmove(c->recv, c->send, c->count * ddh_dtype_bytes(c->dtype));
    return DDH_OK;
  };
  t.reduce_scatter = [](ddh_inst* i, const ddh_coll* c, ddh_err* err) noexcept -> ddh_rc {
    ++one_rank(i).begun;
    if (!comes([&] { return one_rank(i).go.load(); })) return ddh_fail(err, DDH_DEADLINE_EXCEEDED, "no sum may end");
    ++one_rank(i).sums;
    if (one_rank(i).fails) return ddh_fail(err, DDH_UNAVAILABLE, "rank 1 is gone");
    const auto* const from = static_cast<const float*>(c->send);
    const auto* const start = static_cast<const float*>(c->initial);
    for (uint64_t k = 0; k < kSumNumel; ++k)
      static_cast<float*>(c->recv)[k] = (start == nullptr ? 0.0F : start[k]) + from[k];
    return DDH_OK;
  };
  return t;
}

struct CountedNorm : NormSink {
  void add_gradient(const float*, uint64_t, uint64_t, std::span<const ddh_range>) override { ++told; }
  [[nodiscard]] bool sums_on_device() const override { return false; }
  void add_device_gradient(const float*, uint64_t, uint64_t, std::span<const ddh_range>, ddh_stream*) override {}
  int told = 0;
};

struct LateSums {
  OneRank transport;
  CountedNorm norm;
  std::vector<float> sum = std::vector<float>(kSumNumel, -1.0F);
  Progress progress{1};
  ProgressOfRank record{progress, 0};
  ddh_comm_backend_api backend = one_rank_backend();
  Clock clock;
  Device device{cpu_inst(), cpu_device(), DDH_CAP_HOST_MEMORY, "cpu", 0};
  Memory memory;
  Comm comm{reinterpret_cast<ddh_inst*>(&transport), &backend, nullptr, clock, PluginCaller("comm 'one'", &record)};
  Staging staging{memory};
  Windows windows{comm, memory, staging, {true, false, 1}};

  LateSums() {
    progress.lane(0).set_thread(::gettid());
    memory.use(device);
    comm.overlap(&record);
  }
  ~LateSums() { transport.go = true; }
  LateSums(const LateSums&) = delete;
  LateSums& operator=(const LateSums&) = delete;
  // Lets the sum end once it has begun and the main thread waits, and says in which calls the two threads are.
  std::jthread end_sum_when_waited_for(std::string& waits_in, std::string& transfers_in) {
    return std::jthread([&] {
      comes([&] { return transport.begun == 1 && progress.waits(0); });
      waits_in = progress.place(0);
      transfers_in = progress.place(0, RankThread::kComm);
      transport.go = true;
    });
  }
  ddh_exchange* exchange() {
    ddh_exchange* const x = windows.create_exchange({sizeof(ddh_exchange_args), 0, nullptr, kSumNumel, "x"});
    std::fill_n(x->buffer(), kSumNumel, 2.0F);
    x->ready(nullptr);
    return x;
  }
  void reduce(ddh_exchange* x, uint32_t flags) {
    const uint64_t numel[] = {kSumNumel};
    ddh_reduce_args args{};
    args.struct_size = sizeof args;
    args.segment_numel = numel;
    args.dst = sum.data();
    args.flags = flags;
    x->reduce(args, norm, nullptr);
  }
};

}  // namespace

TEST_CASE("a sum for later ends in a wait, and its norm is told there") {
  LateSums f;
  ddh_exchange* const x = f.exchange();
  f.reduce(x, DDH_REDUCE_LATER | DDH_REDUCE_NORM);
  CHECK(f.sum[0] == -1.0F);
  f.transport.go = true;
  REQUIRE(comes([&] { return f.transport.sums == 1; }));
  CHECK(f.norm.told == 0);
  x->wait(nullptr);
  CHECK(f.sum == std::vector<float>(kSumNumel, 2.0F));
  CHECK(f.norm.told == 1);
}

TEST_CASE("a second sum of an exchange for later is added after the first") {
  LateSums f;
  ddh_exchange* const x = f.exchange();
  f.transport.go = true;
  f.reduce(x, DDH_REDUCE_LATER);
  f.reduce(x, DDH_REDUCE_LATER | DDH_REDUCE_ADD | DDH_REDUCE_NORM);
  x->wait(nullptr);
  CHECK(f.sum == std::vector<float>(kSumNumel, 4.0F));
  CHECK(f.norm.told == 1);
}

TEST_CASE("every other collective comes after the sums that were asked for before it") {
  LateSums f;
  ddh_exchange* const x = f.exchange();
  f.reduce(x, DDH_REDUCE_LATER);
  std::string waits_in, transfers_in;
  std::jthread later = f.end_sum_when_waited_for(waits_in, transfers_in);
  CHECK_FALSE(f.comm.any(false, "test"));
  CHECK(f.transport.sums == 1);
  CHECK(f.sum[0] == 2.0F);
  later.join();
  CHECK(waits_in == "reduce_scatter of comm 'one'");
  CHECK(transfers_in == "reduce_scatter of comm 'one'");
}

TEST_CASE("an exchange that is destroyed waits for its sum, whose memory ends") {
  LateSums f;
  ddh_exchange* const x = f.exchange();
  f.reduce(x, DDH_REDUCE_LATER | DDH_REDUCE_NORM);
  std::string waits_in, transfers_in;
  REQUIRE(comes([&] { return f.transport.begun == 1; }));
  std::jthread later = f.end_sum_when_waited_for(waits_in, transfers_in);
  f.windows.destroy(x);
  CHECK(f.transport.sums == 1);
  CHECK(f.norm.told == 0);
  later.join();
  CHECK(waits_in == "reduce_scatter of comm 'one'");
}

TEST_CASE("a call that can't fail waits for the sums, too") {
  LateSums f;
  f.reduce(f.exchange(), DDH_REDUCE_LATER);
  std::string waits_in, transfers_in;
  std::jthread later = f.end_sum_when_waited_for(waits_in, transfers_in);
  f.comm.settle_thread();
  CHECK(f.transport.sums == 1);
  later.join();
  CHECK(waits_in == "reduce_scatter of comm 'one'");
}

TEST_CASE("the error of a sum for later comes from the wait, and again from the next collective") {
  LateSums f;
  f.transport.fails = true;
  f.transport.go = true;
  ddh_exchange* const x = f.exchange();
  f.reduce(x, DDH_REDUCE_LATER);
  CHECK_THROWS_WITH(x->wait(nullptr), Catch::Contains("rank 1 is gone"));
  CHECK_THROWS_WITH(f.comm.any(false, "test"), Catch::Contains("rank 1 is gone"));
}
