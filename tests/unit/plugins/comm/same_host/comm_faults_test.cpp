// SPDX-License-Identifier: Apache-2.0
//
// loop and shm if ranks make different calls, fail or die, or memory is short: an error without delay, and nothing is
// left behind.
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "unit/plugins/comm/same_host/comm_fixture.hpp"

using namespace ddhost::test;
using Clock = std::chrono::steady_clock;

namespace {

size_t open_files() {
  size_t n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

size_t memfd_mappings() {
  std::ifstream maps("/proc/self/maps");
  size_t n = 0;
  for (std::string line; std::getline(maps, line);) n += line.find("memfd:") != std::string::npos ? 1 : 0;
  return n;
}

// Every rank's call must fail in the same way and name both ranks and their calls.
void disagree(const TransportUnderTest& transport, const std::function<void(CommRank&)>& call,
              const std::vector<std::string>& words) {
  require_world(transport, 2, [&](CommRank& c) {
    c.barrier();
    const Failure f = failure_of([&] { call(c); });
    expect(f.code != DDH_OK, "ranks disagree and nobody says so");
    expect(f.names("rank 0") && f.names("rank 1"), "the ranks are not named: ", f.sentence);
    for (const std::string& word : words) expect(f.names(word), "no '", word, "' in: ", f.sentence);
  });
}

}  // namespace

TEST_CASE("different collectives are refused on both ranks") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  std::vector<float> x(4000), y(8000);
  disagree(transport,
           [=](CommRank& c) mutable {
             if (c.rank == 0) return c.barrier();
             c.run(c.backend->all_reduce, c.coll(DDH_F32, x.data(), y.data(), 10));
           },
           {"barrier", "all_reduce"});
  disagree(transport,
           [=](CommRank& c) mutable {
             const uint64_t count = c.rank == 0 ? 3000 : 3001;
             c.run(c.backend->all_reduce, c.coll(DDH_F32, x.data(), y.data(), count));
           },
           {"3000", "3001"});
  disagree(transport,
           [=](CommRank& c) mutable {
             const int32_t dtype = c.rank == 0 ? DDH_F32 : DDH_I32;
             c.run(c.backend->all_gather, c.coll(dtype, x.data(), y.data(), 12));
           },
           {"all_gather"});
  disagree(transport,
           [=](CommRank& c) mutable {
             const uint64_t counts[] = {100, c.rank == 0 ? 200u : 201u};
             c.run(c.backend->reduce_scatter, c.coll(DDH_F32, x.data(), y.data(), 0, counts));
           },
           {"reduce_scatter"});
}

TEST_CASE("regions of different sizes are refused") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  disagree(transport, [](CommRank& c) { c.region<char>("r", c.rank == 0 ? 4096 : 65536, c.world()); }, {});
}

TEST_CASE("a message of another size or dtype than expected is refused") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  require_world(transport, 2, [](CommRank& c) {
    std::vector<float> x(1000);
    ddh_coll args = c.coll(DDH_F32, x.data(), x.data(), c.rank == 0 ? 100 : 101);
    args.root = 1 - c.rank;
    const Failure f = failure_of([&] { c.run(c.rank == 0 ? c.backend->send : c.backend->recv, args); });
    expect(f.code != DDH_OK && f.names("100") && f.names("101"), "rank ", c.rank, ": ", f.sentence);
  });
}

TEST_CASE("invalid arguments are refused on every rank") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  require_world(transport, 2, [](CommRank& c) {
    float x = 0;
    const uint64_t counts[] = {1, 0};
    ddh_coll bad_root = c.coll(DDH_F32, &x, &x, 1);
    bad_root.root = 7;
    expect(failure_of([&] { c.run(c.backend->broadcast, bad_root); }).code != DDH_OK, "root 7 of 2");
    expect(failure_of([&] { c.run(c.backend->send, bad_root); }).code != DDH_OK, "peer 7 of 2");
    expect(failure_of([&] { c.run(c.backend->all_to_all, c.coll(DDH_F32, &x, &x, 1, counts)); }).code != DDH_OK,
           "counts in all_to_all");
    ddh_coll bad_op = c.coll(DDH_F32, &x, &x, 1);
    bad_op.op = 9;
    expect(failure_of([&] { c.run(c.backend->all_reduce, bad_op); }).code == DDH_UNIMPLEMENTED, "op 9");
    expect(failure_of([&] { c.run(c.backend->all_gather, c.coll(99, &x, &x, 1)); }).code == DDH_UNIMPLEMENTED, "dtype");
    expect(failure_of([&] { static_cast<void>(c.group("bad", {1, 0})); }).code != DDH_OK, "descending ranks");
    expect(failure_of([&] { static_cast<void>(c.group("bad", {0, 2})); }).code != DDH_OK, "rank 2 of 2");
    expect(failure_of([&] { static_cast<void>(c.group("bad", {})); }).code != DDH_OK, "no ranks");
    expect(failure_of([&] { c.mark_wait(7, 0, 1); }).code != DDH_OK, "mark of rank 7");
    c.barrier();
  });
}

TEST_CASE("abort ends every wait with its reason, also from another thread") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  const bool in_group = GENERATE(false, true);
  const bool from_thread = GENERATE(false, true);
  const std::vector<std::string> failures = run_ranks(transport, 3, [&](CommRank& c) {
    c.init();
    ddh_group* group = in_group ? c.group("all of them", {0, 1, 2}) : c.world();
    const uint32_t mark = c.marks(1);
    c.barrier();
    if (c.rank == 1) {
      usleep(150'000);
      const auto give_up = [&] { c.backend->abort(c.inst, "the disk is full"); };
      from_thread ? std::thread(give_up).join() : give_up();
      return;
    }
    const auto start = Clock::now();
    const Failure f = failure_of([&] {
      if (c.rank == 0) return c.mark_wait(1, mark, 1);
      ddh::call(c.backend->barrier, c.inst, group);
    });
    expect(f.code == DDH_ABORTED && f.names("rank 1") && f.names("the disk is full"), f.code, ": ", f.sentence);
    expect(Clock::now() - start < std::chrono::seconds(2), "abort took too long");
  });
  CHECK(failures == std::vector<std::string>(3));
}

TEST_CASE("a peer killed is noticed within two seconds and named") {
  const bool in_collective = GENERATE(false, true);
  const std::vector<std::string> failures = run_ranks(kShm, 3, [&](CommRank& c) {
    c.init();
    const uint32_t mark = c.marks(1);
    std::vector<float> x(1000);
    c.barrier();
    if (c.rank == 1) {
      usleep(200'000);
      raise(SIGKILL);
    }
    const auto start = Clock::now();
    const Failure f = failure_of([&] {
      if (!in_collective) return c.mark_wait(1, mark, 1);
      c.run(c.backend->all_reduce, c.coll(DDH_F32, x.data(), x.data(), 1000));
    });
    expect(f.code == DDH_UNAVAILABLE && f.names("rank 1") && f.names("pid") && f.names("died"), f.code, f.sentence);
    expect(Clock::now() - start < std::chrono::seconds(2), "a death took too long to notice");
  });
  CHECK(failures == std::vector<std::string>{"", "signal 9", ""});
}

TEST_CASE("all ranks notice a death, also ranks that wait for a waiting rank") {
  const std::vector<std::string> failures = run_ranks(kShm, 3, [](CommRank& c) {
    c.init();
    const uint32_t mark = c.marks(1);
    c.barrier();
    if (c.rank == 2) raise(SIGKILL);
    // Rank 0 waits for rank 1, which waits for the dead rank 2 and reports nothing.
    const Failure f = failure_of([&] { c.mark_wait(c.rank + 1, mark, 1); });
    expect(f.code == DDH_UNAVAILABLE && f.names("rank 2"), f.code, f.sentence);
    usleep(600'000);
  });
  CHECK(failures == std::vector<std::string>{"", "", "signal 9"});
}

TEST_CASE("nothing is left after the end: no file, no mapping") {
  const std::vector<std::string> failures = run_ranks(kShm, 2, [](CommRank& c) {
    const size_t before = open_files();
    {
      std::shared_ptr<FakeKv> kv = std::make_shared<FakeKv>();
      CommRank alone(ddh_entry_shm, 0, 1, 77, {}, kv);
      alone.init();
      alone.region<char>("r", 1 << 20, alone.world());
      alone.finalize();
    }
    expect(open_files() == before, "an instance alone leaves ", open_files() - before, " files");
    expect(memfd_mappings() == 0, "an instance alone leaves mappings");
    c.init();
    static_cast<void>(c.group("pair", {0, 1}));
    ddh_region* handle = nullptr;
    c.region<char>("kept", 1 << 20, c.world());
    c.region<char>("dropped", 1 << 20, c.world(), &handle);
    const size_t mapped = memfd_mappings();
    c.shared->region_destroy(c.inst, handle);
    expect(memfd_mappings() == mapped - 1, "region_destroy keeps the mapping");
    usleep(c.rank == 0 ? 250'000 : 0);  // long enough for rank 1 to look whether rank 0 lives
    c.finalize();
    expect(open_files() <= before + 1, "open files after finalize: ", open_files() - before);
  });
  CHECK(failures == std::vector<std::string>(2));
}

TEST_CASE("a region larger than the machine is refused on every rank, and the world goes on") {
  const TransportUnderTest& transport = GENERATE(kLoop, kShm);
  require_world(transport, 2, [](CommRank& c) {
    const uint64_t bytes = uint64_t{1} << 45;
    const Failure f = failure_of([&] { c.region<char>("far too big", bytes, c.world()); });
    expect(f.code == DDH_RESOURCE_EXHAUSTED && f.names("far too big") && f.names(std::to_string(bytes)), f.sentence);
    expect(c.region<char>("small", 4096, c.world())[0] == 0, "no region afterwards");
  });
}

TEST_CASE("a limit on file sizes refuses a region instead of killing the rank") {
  require_world(kShm, 2, [](CommRank& c) {
    signal(SIGXFSZ, SIG_IGN);  // as the host does for all of a run
    const rlimit limit{8 << 20, 8 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    const Failure f = failure_of([&] { c.region<char>("limited", 64 << 20, c.world()); });
    expect(f.code == DDH_RESOURCE_EXHAUSTED && f.names("limited") && f.names("ulimit"), f.sentence);
  });
}
