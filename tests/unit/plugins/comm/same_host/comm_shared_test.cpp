// SPDX-License-Identifier: Apache-2.0
//
// Regions, marks and groups of loop and shm, with ranks that sleep at critical points.
#include <chrono>
#include <thread>
#include <utility>

#include "../plugins/comm/same_host/marks.hpp"
#include "unit/plugins/comm/same_host/comm_fixture.hpp"

using namespace ddhost::test;

namespace {

// The member's share of a group's all_reduce of 1 << rank: shows exactly which ranks took part.
int64_t members_of(const CommRank& c, ddh_group* group) {
  int64_t mask = int64_t{1} << c.rank;
  ddh_coll args = c.coll(DDH_I64, &mask, &mask, 1);
  args.group = group;
  c.run(c.backend->all_reduce, args);
  return mask;
}

}  // namespace

TEST_CASE("a region begins zero-filled, page-aligned and is seen by all") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  require_world(transport, 3, [](CommRank& c) {
    ddh_region* handle = nullptr;
    auto* x = c.region<uint32_t>("pages", 3 * 5000 + 7, c.world(), &handle);
    expect(reinterpret_cast<uintptr_t>(x) % 4096 == 0, "not page-aligned");
    for (int i = 0; i < 3751; ++i) expect(x[i] == 0, "not zero at ", i);
    c.barrier();
    x[c.rank] = static_cast<uint32_t>(c.rank) + 10;
    c.barrier();
    for (uint32_t r = 0; r < 3; ++r) expect(x[r] == r + 10, "rank ", c.rank, " does not see the page of rank ", r);
    c.barrier();
    c.shared->region_destroy(c.inst, handle);
    const auto* again = c.region<uint32_t>("again", 4096, c.world());
    expect(again[0] == 0, "a second region is not zero-filled");
  });
}

TEST_CASE("a buffer of all ranks gathers in place and costs no copy") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  require_world(transport, 2, [](CommRank& c) {
    constexpr uint64_t kPiece = 9000;
    auto* view = c.region<float>("view", 2 * kPiece * sizeof(float), c.world());
    float* mine = view + static_cast<uint64_t>(c.rank) * kPiece;
    for (uint64_t i = 0; i < kPiece; ++i) mine[i] = static_cast<float>(c.rank + 1);
    c.run(c.backend->all_gather, c.coll(DDH_F32, mine, view, kPiece));
    for (uint64_t i = 0; i < 2 * kPiece; ++i)
      expect(view[i] == static_cast<float>(i / kPiece + 1), "the shared view differs at ", i);
    c.barrier();
  });
}

TEST_CASE("some ranks may take a buffer in a region and others their own memory") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  require_world(transport, 2, [](CommRank& c) {
    // Mixed: rank 0 reduces from a region, rank 1 from its own memory.
    constexpr uint64_t kCount = 6000;
    auto* x = c.region<float>("mixed", 2 * kCount * sizeof(float), c.world());
    std::vector<float> own(kCount, 2.0F), out(kCount);
    if (c.rank == 0) std::fill_n(x, kCount, 3.0F);
    c.barrier();
    c.run(c.backend->all_reduce, c.coll(DDH_F32, c.rank == 0 ? x : own.data(), out.data(), kCount));
    expect(std::all_of(out.begin(), out.end(), [](float v) { return v == 5.0F; }), "mixed all_reduce is wrong");
    c.run(c.backend->all_gather,
          c.coll(DDH_F32, c.rank == 0 ? x : own.data(), c.rank == 0 ? out.data() : x + kCount, kCount / 2));
    const float* const got = c.rank == 0 ? out.data() : x + kCount;
    for (uint64_t i = 0; i < kCount; ++i) expect(got[i] == (i < kCount / 2 ? 3.0F : 2.0F), "mixed all_gather is wrong");
    c.barrier();
  });
}

TEST_CASE("a handshake by marks keeps its order if ranks sleep at the worst time") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  const int32_t size = GENERATE(2, 4);
  require_world(transport, size, [](CommRank& c) {
    auto* cell = c.region<uint64_t>("cells", 4096, c.world());
    const uint32_t ready = c.marks(2), done = ready + 1;
    const auto doze = [&](uint64_t i, uint64_t place) {
      if ((i * 7 + place * 3 + static_cast<uint64_t>(c.rank)) % 5 == 0) usleep(300);
    };
    for (uint64_t i = 1; i <= 60; ++i) {
      for (int32_t r = 0; r < c.size; ++r) c.mark_wait(r, done, i - 1);  // nobody reads my cell any more
      doze(i, 0);
      cell[c.rank * 8] = i * 100 + static_cast<uint64_t>(c.rank);
      doze(i, 1);
      c.mark_set(ready, i);
      for (int32_t r = 0; r < c.size; ++r) {
        c.mark_wait(r, ready, i);
        doze(i, 2);
        const uint64_t seen = cell[r * 8];
        expect(seen == i * 100 + static_cast<uint64_t>(r), "round ", i, ": rank ", c.rank, " read ", seen, " of ", r);
      }
      doze(i, 3);
      c.mark_set(done, i);
    }
  });
}

TEST_CASE("a mark wakes a waiter that has long been asleep, and never goes down") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  require_world(transport, 2, [](CommRank& c) {
    const uint32_t mark = c.marks(1);
    if (c.rank == 0) {
      usleep(250'000);
      c.mark_set(mark, 5);
      c.mark_set(mark, 3);
    }
    const auto start = std::chrono::steady_clock::now();
    c.mark_wait(0, mark, 4);
    if (c.rank == 1) {
      const auto waited = std::chrono::steady_clock::now() - start;
      expect(waited > std::chrono::milliseconds(100), "rank 1 did not wait");
    }
    c.mark_wait(0, mark, 5);
  });
}

TEST_CASE("a mark beyond 32 bits wakes its waiter") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  require_world(transport, 2, [](CommRank& c) {
    const uint32_t mark = c.marks(1);
    if (c.rank == 0) {
      usleep(5'000);
      c.mark_set(mark, uint64_t{7} << 32);
    }
    c.mark_wait(0, mark, uint64_t{7} << 32);
  });
}

TEST_CASE("a request for too many marks is refused") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  require_world(transport, 2, [](CommRank& c) {
    const uint32_t first = c.marks(1000), second = c.marks(1);
    expect(second == first + 1000, "marks overlap");
    const Failure f = failure_of([&] { static_cast<void>(c.marks(1'000'000)); });
    expect(f.code == DDH_RESOURCE_EXHAUSTED && f.names("1000000"), f.sentence);
  });
}

TEST_CASE("groups with the same name and other members are separate") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  require_world(transport, 4, [](CommRank& c) {
    const int32_t low = c.rank / 2 * 2, odd = c.rank % 2;
    ddh_group* shard = c.group("shard", {low, low + 1});
    ddh_group* replica = c.group("replica", {odd, odd + 2});
    int32_t rank = -1, size = -1;
    uint32_t caps = 0;
    ddh::call(c.backend->group_info, c.inst, shard, &rank, &size, &caps);
    expect(rank == c.rank - low && size == 2, "rank ", rank, " of ", size, " in the shard group");
    expect((caps & DDH_COMM_SHARED_VIEW) != 0 && (caps & DDH_COMM_ORDERED_SUM) != 0, "caps ", caps);
    for (int i = 0; i < 20; ++i) {
      expect(members_of(c, shard) == int64_t{3} << low, "shard group of rank ", c.rank);
      expect(members_of(c, replica) == int64_t{5} << odd, "replica group of rank ", c.rank);
    }
    auto* cell = c.region<int32_t>("of the shard", 4096, shard);
    cell[rank] = c.rank;
    ddh::call(c.backend->barrier, c.inst, shard);
    expect(cell[0] == low && cell[1] == low + 1, "the region of a shard group holds another's");
    ddh::call(c.backend->barrier, c.inst, shard);
  });
}

TEST_CASE("a group can be created twice with one name, and with one rank") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  require_world(transport, 2, [](CommRank& c) {
    ddh_group* first = c.group("pair", {0, 1});
    ddh_group* second = c.group("pair", {0, 1});
    ddh_group* alone = c.group("alone", {c.rank});
    expect(first != second, "one group for two");
    for (int i = 0; i < 5; ++i) {
      expect(members_of(c, first) == 3 && members_of(c, second) == 3, "members");
      expect(members_of(c, alone) == int64_t{1} << c.rank, "a group of one");
    }
  });
}

TEST_CASE("two worlds in one process are separate") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  std::vector<std::string> first, second;
  const RankBody body = [](CommRank& c) {
    c.init();
    for (int i = 0; i < 50; ++i) expect(members_of(c, c.world()) == 3, "members");
    c.finalize();
  };
  const TransportUnderTest as_threads{transport.name, transport.entry, false};
  std::thread other([&] { first = run_ranks(as_threads, 2, body); });
  second = run_ranks(as_threads, 2, body);
  other.join();
  CHECK(first == std::vector<std::string>(2));
  CHECK(second == std::vector<std::string>(2));
}

TEST_CASE("a wait spins for comm.spin_us, and yields its core where the ranks of a host are more than its cores") {
  using namespace same_host;
  CHECK_FALSE(SpinPolicy::choose(20, 1).yields);
  CHECK(SpinPolicy::choose(20, 100'000).yields);
  CHECK(SpinPolicy::choose(20, 1).nanoseconds == 20'000);
  MarkLine line{};
  const auto spin = [&](SpinPolicy policy) {
    const auto begin = std::chrono::steady_clock::now();
    const bool reached = mark_spin(line, 1, policy);
    return std::pair(reached,
                     std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  };
  for (const bool yields : {false, true}) {
    CHECK_FALSE(spin({0, yields}).first);
    const auto [reached, ms] = spin({3'000'000, yields});
    CHECK_FALSE(reached);
    CHECK(ms >= 3);
  }
  for (const bool yields : {false, true}) {
    std::thread owner([&] { mark_raise(line, 1); });
    CHECK(spin({10'000'000'000, yields}).first);
    owner.join();
    CHECK(spin({0, yields}).first);
    line.value = 0;
  }
}
