// SPDX-License-Identifier: Apache-2.0
//
// Two layers of `loop`, compared with one `loop` of all ranks, bit for bit: hosts of equal and of different sizes, every
// collective, small data and data of several chunks. What each layer sends is counted.
#include "engine/services/comm/layered_comm.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/null_sink.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>

#include "ddh/sdk/collective.hpp"
#include "engine/calls/instance.hpp"
#include "engine/services/comm/layers/core.hpp"
#include "engine/services/tables/interfaces.hpp"
#include "fixtures/harness/built.hpp"
#include "fixtures/harness/cpu_device.hpp"
#include "launch/launch.hpp"
#include "plan/prepare.hpp"

using namespace ddhost;
using namespace ddhost::test;

namespace {

const ddh_comm_backend_api& table_of(const Instance& comm) {
  return comm.require<ddh_comm_backend_api>(DDH_COMM_BACKEND_IFACE, DDH_COMM_BACKEND_API_MIN_SIZE);
}

// An instance of `loop` with keys of its own.
struct Loop {
  Loop(const PreparedRun& plan, RankServices& services, const char* name, const ddh_comm_init& init)
      : seat(services, name), instance(plan.comm, seat.host(), "comm"), table(table_of(instance)) {
    ddh::call(table.init, instance.get(), &init);
  }
  // With `backend` as its table, which outlives the result.
  [[nodiscard]] LayeredComm::Transport transport(const ddh_comm_backend_api& backend) const {
    return {instance.get(), &backend,
            instance.find<ddh_comm_shared_api>(DDH_COMM_SHARED_IFACE, DDH_COMM_SHARED_API_MIN_SIZE)};
  }
  PluginSeat seat;
  Instance instance;
  const ddh_comm_backend_api& table;
};

// A way to make collectives.
struct Way {
  ddh_inst* inst;
  const ddh_comm_backend_api& table;
  ddh_group* group = table.world(inst);
};

ddh_comm_init init_of(const Nodes& nodes, const RankSeat& seat, uint32_t block) {
  ddh_comm_init init{};
  init.struct_size = sizeof init;
  init.rank = seat.rank;
  init.world_size = nodes.world_size();
  init.reduce_block = block;
  init.run_id = seat.run_id;
  init.node = nodes.node(seat.rank);
  init.local_rank = nodes.local_rank(seat.rank);
  init.n_nodes = static_cast<uint32_t>(nodes.count());
  init.node_of = nodes.node_of().data();
  init.timeout_ms = 60'000;
  return init;
}

// What the transports of a run lack.
enum class Lack { kNothing, kOrderedSums, kInitial, kReduceScatter, kAllToAll };

using GroupInfo = ddh_rc (*)(ddh_inst*, ddh_group*, int32_t*, int32_t*, uint32_t*, ddh_err*) noexcept;
// The group_info of `loop`, without the capability.
template <uint32_t kCap>
GroupInfo group_info_without(GroupInfo of_loop) {
  static std::atomic<GroupInfo> whole;
  whole = of_loop;
  return [](ddh_inst* inst, ddh_group* group, int32_t* rank, int32_t* size, uint32_t* caps, ddh_err* err) noexcept {
    const ddh_rc rc = whole.load()(inst, group, rank, size, caps, err);
    *caps &= ~kCap;
    return rc;
  };
}

ddh_comm_backend_api inside_table(const ddh_comm_backend_api& of_loop, Lack lack) {
  ddh_comm_backend_api table = of_loop;
  if (lack == Lack::kOrderedSums) table.group_info = group_info_without<DDH_COMM_ORDERED_SUM>(of_loop.group_info);
  if (lack == Lack::kInitial) table.group_info = group_info_without<DDH_COMM_INITIAL>(of_loop.group_info);
  if (lack == Lack::kReduceScatter) table.reduce_scatter = nullptr;
  return table;
}
ddh_comm_backend_api between_table(const ddh_comm_backend_api& of_loop, Lack lack) {
  ddh_comm_backend_api table = of_loop;
  if (lack == Lack::kAllToAll) table.all_to_all = nullptr;
  return table;
}

// One rank that has both: all ranks over one `loop`, and over two layers.
struct Pair {
  Pair(const PreparedRun& plan, const Nodes& all_nodes, const RankSeat& rank_seat, uint32_t block, Lack lack)
      : nodes(all_nodes),
        services(rank_seat, plan.config.clone(),
                 std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::null_sink_mt>())),
        run(init_of(nodes, rank_seat, block)),
        inside_init(run, nodes),
        one(plan, services, "comm:one", run),
        inside(plan, services, "comm:inside", inside_init.get()),
        between(plan, services, "comm:between", run),
        of_inside(inside_table(inside.table, lack)),
        of_between(between_table(between.table, lack)),
        layers(inside.transport(of_inside), between.transport(of_between), nodes, rank_seat.rank, block, services.clock,
               services.memory),
        rank(rank_seat.rank),
        world(nodes.world_size()) {}
  [[nodiscard]] uint64_t wire_bytes() const {
    const auto counters = services.clock.counters();
    const auto at = counters.find("comm.wire_bytes");
    return at == counters.end() ? 0 : at->second;
  }

  const Nodes& nodes;
  RankServices services;
  const ddh_comm_init run;
  const InitInside inside_init;
  Loop one, inside, between;
  const ddh_comm_backend_api of_inside, of_between;
  LayeredComm layers;
  const int32_t rank, world;
};

// Runs `body` on a thread for each rank of the hosts.
void on_hosts(const std::vector<int32_t>& sizes, uint32_t block, const std::function<void(Pair&)>& body,
              Lack lack = Lack::kNothing) {
  const Nodes nodes(sizes);
  Registry registry(&host_interface, DDHOST_BUILD_DIR, linked_plugins());
  const std::vector<Override> settings = {{"comm.plugin", "loop", "test"},
                                          {"comm.staging_bytes", "65536", "test"},
                                          {"model.plugin", test_plugin("toy"), "test"}};
  const PreparedRun plan = prepare_run(UserConfig::read("", settings), registry,
                                       {.device = {"cpu", "a test"}, .world_size = nodes.world_size()});
  LaunchArgs args;
  args.world_size = nodes.world_size();
  args.threads = true;
  const Outcome outcome = launch(args, [&](const RankSeat& seat) {
    Pair pair(plan, nodes, seat, block, lack);
    try {
      body(pair);
      ddh::call(LayeredComm::table().finalize, pair.layers.inst());
    } catch (const std::exception& e) {
      pair.one.table.abort(pair.one.instance.get(), e.what());
      LayeredComm::table().abort(pair.layers.inst(), e.what());
      throw;
    }
    return 0;
  });
  INFO("a block of " << block << " ranks: " << outcome.sentence);
  CHECK(outcome.exit_code == 0);
}

// Values whose sum depends on the order of the additions.
std::vector<float> values(int32_t rank, uint64_t n) {
  const float magnitude = rank % 3 == 0 ? 1e7F : rank % 3 == 1 ? -1e7F : 1.0F;
  std::vector<float> out(n + 1);
  for (uint64_t i = 0; i < n; ++i)
    out[i] = magnitude * (1.0F + 1e-3F * static_cast<float>((i * 7 + static_cast<uint64_t>(rank + 1) * 13) % 101));
  out[n] = 77.0F;  // the end, which no call may touch
  return out;
}

// A call of one way. Its results.
using Body = std::function<std::vector<float>(const Way&)>;
void expect_equal(Pair& p, const char* what, uint64_t n, const Body& body) {
  const std::vector<float> one = body({p.one.instance.get(), p.one.table});
  const std::vector<float> two = body({p.layers.inst(), LayeredComm::table()});
  if (one.size() != two.size() || std::memcmp(one.data(), two.data(), one.size() * sizeof(float)) != 0)
    ddh::fail(DDH_INTERNAL, what, " of ", n, " elements differs on rank ", p.rank);
}

ddh_coll coll(const Way& way, const void* send, void* recv, uint64_t count) {
  ddh_coll c = ddh::collective(DDH_F32, "test");
  c.op = DDH_SUM;
  c.send = send;
  c.recv = recv;
  c.count = count;
  c.group = way.group;
  return c;
}

// Pieces of all ranks: even, uneven with empty ones, or all on one rank.
std::vector<uint64_t> counts_of(int32_t world, uint64_t n, int kind) {
  std::vector<uint64_t> counts(static_cast<size_t>(world), n);
  for (size_t r = 0; r < counts.size() && kind == 1; ++r) counts[r] = n * r / 2 + (r == 2 ? 5 : 0);
  for (size_t r = 0; r < counts.size() && kind == 2; ++r) counts[r] = r == 1 ? n * counts.size() : 0;
  return counts;
}

void compare_all_reduce(Pair& p, uint64_t n) {
  for (const bool starts : {false, true})
    for (const bool in_place : {false, true})
      expect_equal(p, "all_reduce", n, [&](const Way& way) {
        std::vector<float> x = values(p.rank, n), out(n + 1, 77.0F);
        const std::vector<float> start = values(5, n);
        ddh_coll c = coll(way, x.data(), in_place ? x.data() : out.data(), n);
        if (starts) c.initial = start.data();
        ddh::call(way.table.all_reduce, way.inst, &c);
        return in_place ? x : out;
      });
}

void compare_pieces(Pair& p, uint64_t n) {
  const auto me = static_cast<size_t>(p.rank);
  for (const int kind : {0, 1, 2})
    for (const bool starts : {false, true}) {
      const std::vector<uint64_t> counts = counts_of(p.world, n, kind);
      uint64_t total = 0, offset = 0;
      for (size_t r = 0; r < counts.size(); ++r) {
        if (r == me) offset = total;
        total += counts[r];
      }
      expect_equal(p, "reduce_scatter", total, [&](const Way& way) {
        const std::vector<float> x = values(p.rank, total);
        std::vector<float> piece = values(p.rank + 7, counts[me]);
        ddh_coll c = coll(way, x.data(), piece.data(), n);
        c.counts = kind == 0 ? nullptr : counts.data();
        if (starts) c.initial = piece.data();
        ddh::call(way.table.reduce_scatter, way.inst, &c);
        return piece;
      });
      expect_equal(p, "reduce_scatter and all_gather in place", total, [&](const Way& way) {
        std::vector<float> x = values(p.rank, total);
        const std::vector<float> start = values(p.rank + 7, counts[me]);
        ddh_coll c = coll(way, x.data(), x.data() + offset, n);
        c.counts = kind == 0 ? nullptr : counts.data();
        if (starts) c.initial = start.data();
        ddh::call(way.table.reduce_scatter, way.inst, &c);
        c.send = x.data() + offset;
        c.recv = x.data();
        c.initial = nullptr;
        ddh::call(way.table.all_gather, way.inst, &c);
        return x;
      });
    }
}

void compare_moves(Pair& p, uint64_t n) {
  const auto world = static_cast<uint64_t>(p.world);
  for (int32_t root = 0; root < p.world; ++root)
    expect_equal(p, "broadcast", n, [&](const Way& way) {
      std::vector<float> x = values(p.rank, n);
      ddh_coll c = coll(way, x.data(), x.data(), n);
      c.root = root;
      ddh::call(way.table.broadcast, way.inst, &c);
      return x;
    });
  expect_equal(p, "all_to_all", n, [&](const Way& way) {
    const std::vector<float> x = values(p.rank, n * world);
    std::vector<float> out(n * world + 1);
    const ddh_coll c = coll(way, x.data(), out.data(), n);
    ddh::call(way.table.all_to_all, way.inst, &c);
    return out;
  });
  expect_equal(p, "all_gather apart", n, [&](const Way& way) {
    const std::vector<float> x = values(p.rank, n);
    std::vector<float> out(n * world + 1);
    const ddh_coll c = coll(way, x.data(), out.data(), n);
    ddh::call(way.table.all_gather, way.inst, &c);
    return out;
  });
  if (p.world % 2 == 1) return;
  expect_equal(p, "send and recv", n, [&](const Way& way) {
    const std::vector<float> x = values(p.rank, n);
    std::vector<float> got(n + 1);
    ddh_coll to = coll(way, x.data(), nullptr, n), from = coll(way, nullptr, got.data(), n);
    to.root = (p.rank + 1) % p.world;
    from.root = (p.rank + p.world - 1) % p.world;
    if (p.rank % 2 == 0) ddh::call(way.table.send, way.inst, &to);
    ddh::call(way.table.recv, way.inst, &from);
    if (p.rank % 2 == 1) ddh::call(way.table.send, way.inst, &to);
    return got;
  });
}

// Other numbers than F32 go another way.
template <class T>
void compare_other(Pair& p, int32_t dtype, int32_t op) {
  constexpr uint64_t kNumel = 9000;
  expect_equal(p, "all_reduce of other numbers", kNumel, [&](const Way& way) {
    std::vector<T> x(kNumel);
    for (uint64_t i = 0; i < kNumel; ++i) x[i] = static_cast<T>((i * 31 + static_cast<uint64_t>(p.rank) * 17) % 1009);
    ddh_coll c = coll(way, x.data(), x.data(), kNumel);
    c.dtype = dtype;
    c.op = op;
    ddh::call(way.table.all_reduce, way.inst, &c);
    std::vector<float> out;
    for (const T& value : x) out.push_back(static_cast<float>(value));
    return out;
  });
}

void compare_groups(Pair& p) {
  const int32_t host = p.nodes.node(p.rank);
  std::vector<int32_t> near, far;  // the ranks of this host; one rank of each
  for (int32_t r = 0; r < p.world; ++r) {
    if (p.nodes.node(r) == host) near.push_back(r);
    if (p.nodes.local_rank(r) == 0) far.push_back(r);
  }
  for (const std::vector<int32_t>& ranks : {near, far}) {
    if (std::find(ranks.begin(), ranks.end(), p.rank) == ranks.end()) continue;
    const bool is_near = ranks == near;
    expect_equal(p, "all_reduce of a group", 5000, [&](const Way& way) {
      ddh_group* group = nullptr;
      const auto size = static_cast<uint32_t>(ranks.size());
      ddh::call(way.table.group_create, way.inst, "part", ranks.data(), size, &group);
      int32_t rank = -1, n = -1;
      uint32_t caps = 0;
      ddh::call(way.table.group_info, way.inst, group, &rank, &n, &caps);
      const bool is_layered = way.inst == p.layers.inst();
      if (ranks[static_cast<size_t>(rank)] != p.rank || n != static_cast<int32_t>(size))
        ddh::fail(DDH_INTERNAL, "a group has rank ", rank, " of ", n);
      if (is_layered && ((caps & DDH_COMM_SHARED_VIEW) != 0) != is_near)
        ddh::fail(DDH_INTERNAL, "only a group inside a host shares pages");
      std::vector<float> x = values(p.rank, 5000);
      ddh_coll c = coll(way, x.data(), x.data(), 5000);
      c.group = group;
      ddh::call(way.table.all_reduce, way.inst, &c);
      ddh::call(way.table.barrier, way.inst, group);
      return x;
    });
  }
}

const std::vector<std::vector<int32_t>> kHosts = {{2, 2}, {3, 1}, {1, 3}, {2, 1, 3}, {2, 2, 2}, {4, 4}};
const std::vector<std::vector<int32_t>> kHostsWithMuch = {{2, 2}, {3, 1}, {2, 2, 2}};

}  // namespace

TEST_CASE("two layers have the bits of one", "[layers]") {
  const std::vector<int32_t> sizes = GENERATE(from_range(kHosts));
  std::string hosts;
  for (const int32_t size : sizes) hosts += std::to_string(size) + " ";
  INFO("hosts of " << hosts << "ranks");
  const auto block = static_cast<uint32_t>(GENERATE(1, 2, 4));
  on_hosts(sizes, block, [](Pair& p) {
    for (const uint64_t n : {uint64_t{0}, uint64_t{3}, uint64_t{9001}}) {
      compare_all_reduce(p, n);
      compare_pieces(p, n);
      compare_moves(p, n);
    }
    compare_other<double>(p, DDH_F64, DDH_SUM);
    compare_other<int64_t>(p, DDH_I64, DDH_SUM);
    compare_other<int32_t>(p, DDH_I32, DDH_MAX);
    compare_other<float>(p, DDH_F32, DDH_MIN);
    compare_groups(p);
  });
}

TEST_CASE("many chunks have the bits of one", "[layers]") {
  const std::vector<int32_t> sizes = GENERATE(from_range(kHostsWithMuch));
  const auto block = static_cast<uint32_t>(GENERATE(1, 2));
  on_hosts(sizes, block, [](Pair& p) {
    const uint64_t n = 1'200'017 / static_cast<uint64_t>(p.world);
    compare_all_reduce(p, n * static_cast<uint64_t>(p.world));
    compare_pieces(p, n);
    compare_moves(p, n / 4);
  });
}

TEST_CASE("transports that lack something have the bits of one, and a sentence says what they lack", "[layers]") {
  struct Case {
    Lack lack;
    uint32_t block;
    std::string reason;
  };
  const Case c = GENERATE(Case{Lack::kNothing, 1, "sums go on from host to host, because train.reduce_block=1 divides"},
                          Case{Lack::kNothing, 2, "hosts add their sums, because train.reduce_block=2 is"},
                          Case{Lack::kNothing, 4, "train.reduce_block=4 does not divide the ranks of each host"},
                          Case{Lack::kOrderedSums, 2, "comm.inside does not sum in the order of ranks"},
                          Case{Lack::kInitial, 1, "comm.inside does not go on from an earlier sum"},
                          Case{Lack::kInitial, 2, "hosts add their sums"},
                          Case{Lack::kReduceScatter, 1, "collectives of all ranks take the transport between hosts"},
                          Case{Lack::kAllToAll, 1, "because it has no all_to_all"});
  INFO(c.reason);
  on_hosts(
      {2, 2}, c.block,
      [&](Pair& p) {
        if (p.layers.order_text().find(c.reason) == std::string::npos)
          ddh::fail(DDH_INTERNAL, "the reason is: ", p.layers.order_text());
        compare_all_reduce(p, 9001);
        compare_pieces(p, 9001);
        compare_groups(p);
      },
      c.lack);
}

TEST_CASE("the bytes between hosts do not grow with their ranks", "[layers]") {
  constexpr uint64_t kNumel = 480'000, kBytes = kNumel * sizeof(float);
  for (const uint32_t block : {1U, 4U})
    on_hosts({4, 4}, block, [&](Pair& p) {
      const auto sum_over_ranks = [&](uint64_t mine) {
        std::vector<uint64_t> all(static_cast<size_t>(p.world));
        ddh_coll c = coll({p.one.instance.get(), p.one.table}, &mine, all.data(), sizeof mine);
        c.dtype = DDH_U8;
        ddh::call(p.one.table.all_gather, p.one.instance.get(), &c);
        uint64_t sum = 0;
        for (const uint64_t bytes : all) sum += bytes;
        return sum;
      };
      const Way way = {p.layers.inst(), LayeredComm::table()};
      std::vector<float> x = values(p.rank, kNumel), piece(kNumel / 8);
      const auto sent_by = [&](ddh_rc (*function)(ddh_inst*, const ddh_coll*, ddh_err*) noexcept, const ddh_coll& c) {
        const uint64_t before = p.wire_bytes();
        ddh::call(function, way.inst, &c);
        return sum_over_ranks(p.wire_bytes() - before);
      };
      const auto expect_sent = [&](const char* what, uint64_t sent, uint64_t wanted) {
        if (sent != wanted) ddh::fail(DDH_INTERNAL, what, " sends ", sent, " bytes between hosts, not ", wanted);
      };
      const uint64_t scattered = sent_by(way.table.reduce_scatter, coll(way, x.data(), piece.data(), kNumel / 8));
      expect_sent("reduce_scatter", scattered, block == 1 ? kBytes * 3 / 2 : kBytes);
      expect_sent("all_gather", sent_by(way.table.all_gather, coll(way, piece.data(), x.data(), kNumel / 8)), kBytes);
      expect_sent("all_reduce", sent_by(way.table.all_reduce, coll(way, x.data(), x.data(), kNumel)), 2 * kBytes);
      expect_sent("broadcast", sent_by(way.table.broadcast, coll(way, x.data(), x.data(), kNumel)), kBytes);
    });
}

TEST_CASE("the sizes of the hosts and the block choose the order of a sum", "[layers]") {
  using layers::SumOrder;
  const auto order = [](const std::vector<int32_t>& sizes, uint32_t block) {
    return LayeredComm::order_of(Nodes(sizes), block);
  };
  CHECK(order({2, 2}, 1) == SumOrder::kChain);
  CHECK(order({2, 2}, 2) == SumOrder::kBlocks);
  CHECK(order({4, 4}, 2) == SumOrder::kChain);
  CHECK(order({3, 1}, 1) == SumOrder::kChain);
  CHECK(order({3, 1}, 2) == SumOrder::kFlat);
  CHECK(order({2, 2}, 4) == SumOrder::kFlat);
}

TEST_CASE("a part without elements is nowhere, also where there is no memory", "[layers]") {
  std::byte bytes[8] = {};
  CHECK(layers::part_of(&bytes[0], 3, 5) == &bytes[3]);
  CHECK(layers::part_of(&bytes[0], 16, 0) == nullptr);
  CHECK(layers::part_of<const float>(nullptr, 4, 0) == nullptr);
}
