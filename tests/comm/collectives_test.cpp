// SPDX-License-Identifier: Apache-2.0
//
// The algebra of collectives on loop (threads) and shm (processes), against straightforward sums in rank order: sizes, dtypes,
// worlds, in place and not, uneven and empty pieces, staged and in shared pages.
#include <spdlog/logger.h>
#include <spdlog/sinks/null_sink.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <functional>

#include "cli/prepare.hpp"
#include "device/cpu/device.hpp"
#include "launch/launch.hpp"
#include "plugin/instance.hpp"
#include "services/interfaces.hpp"

using namespace ddhost;

namespace {

// One rank with its transport.
struct CommRank {
  CommRank(const RunPlan& plan, const RankSeat& rank_seat, uint32_t reduce_block)
      : services(rank_seat, plan.config,
                 std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::null_sink_mt>())),
        seat(services, "comm:test"),
        instance(plan.comm, seat.host(), "comm"),
        table(instance.require<ddh_comm_backend_api>(DDH_COMM_BACKEND_IFACE, DDH_COMM_BACKEND_API_MIN_SIZE)),
        shared(instance.require<ddh_comm_shared_api>(DDH_COMM_SHARED_IFACE, DDH_COMM_SHARED_API_MIN_SIZE)),
        rank(rank_seat.rank),
        world(rank_seat.world_size) {
    const ddh_comm_init init{sizeof init, rank, world, reduce_block, rank_seat.run_id, 0, rank, world, 0};
    ddh::call(table.init, instance.get(), &init);
    group = table.world(instance.get());
  }
  using Collective = ddh_rc (*)(ddh_inst*, const ddh_coll*, ddh_err*) noexcept;
  void call(Collective collective, const void* send, void* recv, uint64_t count, int32_t dtype = DDH_F32,
            int32_t op = DDH_SUM, const uint64_t* counts = nullptr, int32_t root = 0) {
    const ddh_coll c{sizeof c, dtype, op, root, send, recv, count, counts, group, nullptr, "test", nullptr, nullptr};
    ddh::call(collective, instance.get(), &c);
  }
  RankServices services;
  PluginSeat seat;
  Instance instance;
  const ddh_comm_backend_api& table;
  const ddh_comm_shared_api& shared;
  const int32_t rank, world;
  ddh_group* group = nullptr;
};

Outcome run_world(const std::string& transport, int world, const std::function<void(CommRank&)>& body,
                  uint32_t reduce_block = 0) {
  Registry registry(&host_interface, DDHOST_BUILD_DIR, {&cpu::device_module()});
  const UserConfig user =
      UserConfig::read("", {{"comm.plugin", transport, "test"},
                            {"model.plugin", std::string(DDHOST_BUILD_DIR) + "/tests/plugins/toy.so", "test"},
                            {"comm.staging_bytes", "65536", "test"}});
  const RunPlan plan = make_plan(user, registry, world);
  LaunchArgs args;
  args.world_size = world;
  args.threads = plan.ranks_are_threads;
  return launch(args, [&](const RankSeat& seat) {
    CommRank rank(plan, seat, reduce_block == 0 ? static_cast<uint32_t>(world) : reduce_block);
    try {
      body(rank);
      ddh::call(rank.table.finalize, rank.instance.get());
    } catch (const std::exception& e) {
      rank.table.abort(rank.instance.get(), e.what());
      throw;
    }
    return 0;
  });
}

void check_world(const std::string& transport, int world, const std::function<void(CommRank&)>& body,
                 uint32_t reduce_block = 0) {
  const Outcome outcome = run_world(transport, world, body, reduce_block);
  INFO(transport << ", world " << world << ": " << outcome.sentence);
  CHECK(outcome.exit_code == 0);
}

// Values whose sum depends on the order of the additions.
float value(int32_t rank, uint64_t i) {
  const float magnitude = rank % 3 == 0 ? 1e7F : rank % 3 == 1 ? -1e7F : 1.0F;
  return magnitude * (1.0F + 1e-3F * static_cast<float>((i * 7 + static_cast<uint64_t>(rank) * 13) % 101));
}

float sum_in_order(int32_t world, uint64_t i, int32_t block) {
  float total = 0;
  for (int32_t first = 0; first < world; first += block) {
    float sum = value(first, i);
    for (int32_t r = first + 1; r < std::min(world, first + block); ++r) sum += value(r, i);
    total = first == 0 ? sum : total + sum;
  }
  return total;
}

void expect(bool ok, const char* what, uint64_t numel) {
  if (!ok) ddh::fail(DDH_INTERNAL, what, " is wrong with ", numel, " elements");
}

const std::vector<uint64_t> kSizes = {0, 1, 3, 63, 64, 65, 255, 257, 1000, 70'000};
std::vector<float> mine(const CommRank& r, uint64_t n) {
  std::vector<float> x(n + 1);
  for (uint64_t i = 0; i < n; ++i) x[i] = value(r.rank, i);
  return x;
}

void test_all_reduce(CommRank& r, int32_t block) {
  for (const uint64_t n : kSizes) {
    std::vector<float> x = mine(r, n), out(n + 1, 77.0F);
    r.call(r.table.all_reduce, x.data(), out.data(), n);
    r.call(r.table.all_reduce, x.data(), x.data(), n);
    for (uint64_t i = 0; i < n; ++i) {
      expect(out[i] == sum_in_order(r.world, i, block) && x[i] == out[i], "all_reduce", n);
    }
    expect(out[n] == 77.0F, "all_reduce beyond its end", n);
  }
}

void test_pieces(CommRank& r) {
  for (const uint64_t n : kSizes) {
    const bool uneven = n % 2 == 1;
    std::vector<uint64_t> counts;
    uint64_t total = 0, my_offset = 0;
    for (int32_t p = 0; p < r.world; ++p) {
      counts.push_back(uneven ? n * static_cast<uint64_t>(p) / 2 : n);  // rank 0 has an empty piece
      if (p < r.rank) my_offset += counts.back();
      total += counts.back();
    }
    const uint64_t my_count = counts[static_cast<size_t>(r.rank)];
    const uint64_t* given = uneven ? counts.data() : nullptr;
    const std::vector<float> x = mine(r, total);
    std::vector<float> piece(my_count + 1), all(total + 1);
    r.call(r.table.reduce_scatter, x.data(), piece.data(), n, DDH_F32, DDH_SUM, given);
    for (uint64_t i = 0; i < my_count; ++i)
      expect(piece[i] == sum_in_order(r.world, my_offset + i, r.world), "reduce_scatter", n);
    r.call(r.table.all_gather, piece.data(), all.data(), n, DDH_F32, DDH_SUM, given);
    for (uint64_t i = 0; i < total; ++i) expect(all[i] == sum_in_order(r.world, i, r.world), "all_gather", n);
    std::vector<float> in_place = x;
    r.call(r.table.reduce_scatter, in_place.data(), in_place.data() + my_offset, n, DDH_F32, DDH_SUM, given);
    r.call(r.table.all_gather, in_place.data() + my_offset, in_place.data(), n, DDH_F32, DDH_SUM, given);
    for (uint64_t i = 0; i < total; ++i) expect(in_place[i] == all[i], "reduce_scatter and all_gather in place", n);
  }
}

void test_moves(CommRank& r) {
  const auto world = static_cast<uint64_t>(r.world);
  for (const uint64_t n : kSizes) {
    for (int32_t root = 0; root < r.world; ++root) {
      std::vector<float> x = mine(r, n);
      r.call(r.table.broadcast, x.data(), x.data(), n, DDH_F32, DDH_SUM, nullptr, root);
      for (uint64_t i = 0; i < n; ++i) expect(x[i] == value(root, i), "broadcast", n);
    }
    const std::vector<float> x = mine(r, n * world);
    std::vector<float> out(n * world + 1);
    r.call(r.table.all_to_all, x.data(), out.data(), n);
    for (uint64_t p = 0; p < world; ++p) {
      for (uint64_t i = 0; i < n; ++i) {
        expect(out[p * n + i] == value(static_cast<int32_t>(p), static_cast<uint64_t>(r.rank) * n + i), "all_to_all",
               n);
      }
    }
    // A ring of messages: even ranks send first.
    if (r.world < 2 || r.world % 2 == 1) continue;
    std::vector<float> got(n + 1);
    const int32_t next = (r.rank + 1) % r.world, before = (r.rank + r.world - 1) % r.world;
    const auto send = [&] { r.call(r.table.send, x.data(), nullptr, n, DDH_F32, 0, nullptr, next); };
    const auto recv = [&] { r.call(r.table.recv, nullptr, got.data(), n, DDH_F32, 0, nullptr, before); };
    if (r.rank % 2 == 0) send();
    recv();
    if (r.rank % 2 == 1) send();
    for (uint64_t i = 0; i < n; ++i) expect(got[i] == value(before, i), "send and recv", n);
  }
}

template <class T>
void test_dtype(CommRank& r, int32_t dtype) {
  for (const uint64_t n : {uint64_t{1}, uint64_t{65}, uint64_t{20'000}}) {
    for (const int32_t op : {DDH_SUM, DDH_MAX, DDH_MIN}) {
      std::vector<T> x(n), expected(n);
      const auto at = [](int32_t rank, uint64_t i) {
        return static_cast<T>((i * 31 + static_cast<uint64_t>(rank) * 17) % 1000) - static_cast<T>(500);
      };
      for (uint64_t i = 0; i < n; ++i) {
        x[i] = at(r.rank, i);
        expected[i] = at(0, i);
        for (int32_t p = 1; p < r.world; ++p) {
          expected[i] = op == DDH_SUM   ? expected[i] + at(p, i)
                        : op == DDH_MAX ? std::max(expected[i], at(p, i))
                                        : std::min(expected[i], at(p, i));
        }
      }
      r.call(r.table.all_reduce, x.data(), x.data(), n, dtype, op);
      expect(x == expected, "all_reduce of another dtype", n);
    }
  }
}

// bf16: the sum in fp32, rounded once at the end.
void test_bf16(CommRank& r) {
  const auto to_bf16 = [](float f) {
    uint32_t bits = 0;
    std::memcpy(&bits, &f, sizeof bits);
    return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  };
  const auto to_float = [](uint16_t h) {
    const uint32_t bits = static_cast<uint32_t>(h) << 16;
    float f = 0;
    std::memcpy(&f, &bits, sizeof f);
    return f;
  };
  for (const uint64_t n : {uint64_t{3}, uint64_t{1000}, uint64_t{50'000}}) {
    std::vector<uint16_t> x(n);
    for (uint64_t i = 0; i < n; ++i)
      x[i] = to_bf16(1.0F + 0.01F * static_cast<float>(i % 97) + static_cast<float>(r.rank));
    r.call(r.table.all_reduce, x.data(), x.data(), n, DDH_BF16);
    for (uint64_t i = 0; i < n; ++i) {
      float sum = to_float(to_bf16(1.0F + 0.01F * static_cast<float>(i % 97)));
      for (int32_t p = 1; p < r.world; ++p)
        sum += to_float(to_bf16(1.0F + 0.01F * static_cast<float>(i % 97) + static_cast<float>(p)));
      expect(x[i] == to_bf16(sum), "all_reduce of bf16", n);
    }
  }
}

// The same calls on buffers that all ranks map: nothing is staged.
void test_regions(CommRank& r) {
  constexpr uint64_t kNumel = 40'000;
  const auto world = static_cast<uint64_t>(r.world), rank = static_cast<uint64_t>(r.rank);
  void* base = nullptr;
  ddh_region* region = nullptr;
  ddh::call(r.shared.region_create, r.instance.get(), r.group, "test", kNumel * world * sizeof(float), &base, &region);
  float* own = static_cast<float*>(base) + rank * kNumel;
  const auto refill = [&] {
    for (uint64_t i = 0; i < kNumel; ++i) own[i] = value(r.rank, i);
    ddh::call(r.table.barrier, r.instance.get(), r.group);
  };
  refill();
  r.call(r.table.all_reduce, own, own, kNumel);
  for (uint64_t i = 0; i < kNumel; ++i)
    expect(own[i] == sum_in_order(r.world, i, r.world), "all_reduce in shared pages", kNumel);
  refill();
  const uint64_t piece = kNumel / 8;
  std::vector<float> out(piece), all(piece * world);
  r.call(r.table.reduce_scatter, own, out.data(), piece);
  for (uint64_t i = 0; i < piece; ++i)
    expect(out[i] == sum_in_order(r.world, rank * piece + i, r.world), "reduce_scatter from shared pages", piece);
  r.call(r.table.all_gather, own, all.data(), piece);
  for (uint64_t i = 0; i < piece * world; ++i)
    expect(all[i] == value(static_cast<int32_t>(i / piece), i % piece), "all_gather from shared pages", piece);
  ddh::call(r.table.barrier, r.instance.get(), r.group);
  r.shared.region_destroy(r.instance.get(), region);
}

}  // namespace

TEST_CASE("collectives equal their definition, sums in rank order", "[comm]") {
  const std::string transport = GENERATE("loop", "shm");
  const int world = GENERATE(1, 2, 3, 4, 8);
  check_world(transport, world, [](CommRank& r) {
    test_all_reduce(r, r.world);
    test_pieces(r);
    test_moves(r);
    test_dtype<double>(r, DDH_F64);
    test_dtype<int32_t>(r, DDH_I32);
    test_dtype<int64_t>(r, DDH_I64);
    test_bf16(r);
    test_regions(r);
  });
}

TEST_CASE("sums keep to blocks of ranks", "[comm]") {
  const std::string transport = GENERATE("loop", "shm");
  check_world(
      transport, 4, [](CommRank& r) { test_all_reduce(r, 2); }, 2);
}

TEST_CASE("a group of some ranks works beside the world", "[comm]") {
  const std::string transport = GENERATE("loop", "shm");
  check_world(transport, 4, [](CommRank& r) {
    const int32_t even[] = {0, 2}, odd[] = {1, 3};
    ddh::call(r.table.group_create, r.instance.get(), r.rank % 2 == 0 ? "even" : "odd", r.rank % 2 == 0 ? even : odd,
              2u, &r.group);
    for (const uint64_t n : kSizes) {
      std::vector<float> x = mine(r, n);
      r.call(r.table.all_reduce, x.data(), x.data(), n);
      for (uint64_t i = 0; i < n; ++i)
        expect(x[i] == value(r.rank % 2, i) + value(r.rank % 2 + 2, i), "all_reduce in a group", n);
    }
  });
}

TEST_CASE("ranks that make different calls are told which", "[comm]") {
  const std::string transport = GENERATE("loop", "shm");
  const Outcome outcome = run_world(transport, 2, [](CommRank& r) {
    std::vector<float> x(100);
    r.call(r.table.all_reduce, x.data(), x.data(), r.rank == 0 ? 100 : 99);
  });
  CHECK(outcome.exit_code == 1);
  CHECK_THAT(outcome.sentence, Catch::Contains("all_reduce of 100") && Catch::Contains("all_reduce of 99"));
}

TEST_CASE("a rank that gives up ends the waits of the others with its reason", "[comm]") {
  const std::string transport = GENERATE("loop", "shm");
  const Outcome outcome = run_world(transport, 3, [](CommRank& r) {
    if (r.rank == 1) ddh::fail(DDH_DATA_LOSS, "the disk ate my batch");
    ddh::call(r.table.barrier, r.instance.get(), r.group);
  });
  CHECK(outcome.exit_code == 1);
  CHECK_THAT(outcome.sentence, Catch::Contains("the disk ate my batch"));
}

TEST_CASE("a mark wakes a sleeping waiter, and regions leave no descriptor behind", "[comm]") {
  check_world("shm", 2, [](CommRank& r) {
    const auto descriptors = [] {
      return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
    };
    uint32_t mark = 0;
    ddh::call(r.shared.marks_create, r.instance.get(), r.group, 1u, &mark);
    for (uint64_t i = 1; i <= 20; ++i) {
      if (r.rank == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // long enough for the peer to sleep
        r.shared.mark_set(r.instance.get(), r.group, mark, i);
      } else {
        ddh::call(r.shared.mark_wait, r.instance.get(), r.group, 0, mark, i, "test");
      }
    }
    ddh::call(r.table.barrier, r.instance.get(), r.group);
    const auto before = descriptors();
    for (int i = 0; i < 5; ++i) {
      void* base = nullptr;
      ddh_region* region = nullptr;
      ddh::call(r.shared.region_create, r.instance.get(), r.group, "r", uint64_t{8192}, &base, &region);
      r.shared.region_destroy(r.instance.get(), region);
    }
    expect(descriptors() == before, "the number of open descriptors", 5);
  });
}

TEST_CASE("a region that the machine can't back is refused on every rank", "[comm]") {
  const Outcome outcome = run_world("shm", 2, [](CommRank& r) {
    void* base = nullptr;
    ddh_region* region = nullptr;
    ddh::call(r.shared.region_create, r.instance.get(), r.group, "huge", uint64_t{1} << 50, &base, &region);
  });
  CHECK(outcome.exit_code == 1);
  CHECK_THAT(outcome.sentence, Catch::Contains("huge") && Catch::Contains("bytes"));
}
