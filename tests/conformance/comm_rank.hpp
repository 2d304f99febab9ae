// SPDX-License-Identifier: Apache-2.0
//
// tests/conformance/comm_rank.hpp: a world of ranks over a transport, driven as the host drives it.
#pragma once

#include <spdlog/logger.h>
#include <spdlog/sinks/null_sink.h>

#include <csignal>
#include <cstdio>
#include <functional>

#include "conformance/world_of_tasks.hpp"
#include "engine/calls/instance.hpp"
#include "engine/services/tables/interfaces.hpp"
#include "fixtures/harness/built.hpp"
#include "launch/launch.hpp"
#include "plan/prepare.hpp"

namespace ddhost::test {

// One rank with its transport.
struct CommRank {
  CommRank(const PreparedRun& run_plan, const RankSeat& rank_seat, uint32_t reduce_block)
      : plan(run_plan),
        services(rank_seat, run_plan.config.clone(),
                 std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::null_sink_mt>())),
        seat(services, "comm:test"),
        instance(plan.comm, seat.host(), "comm"),
        table(instance.require<ddh_comm_backend_api>(DDH_COMM_BACKEND_IFACE, DDH_COMM_BACKEND_API_MIN_SIZE)),
        shared_or_null(instance.find<ddh_comm_shared_api>(DDH_COMM_SHARED_IFACE, DDH_COMM_SHARED_API_MIN_SIZE)),
        rank(rank_seat.rank),
        world(rank_seat.world_size()) {
    const Nodes& nodes = *rank_seat.nodes;
    for (const std::string& address : nodes.addresses()) addresses.push_back(address.c_str());
    const int32_t node = rank_seat.node();
    const ddh_comm_init init{sizeof init,
                             rank,
                             world,
                             reduce_block,
                             rank_seat.run_id,
                             node,
                             rank_seat.local_rank(),
                             nodes.ranks_per_node(),
                             static_cast<uint32_t>(nodes.count()),
                             nullptr,
                             nodes.node_of().data(),
                             addresses.empty() ? nullptr : addresses[static_cast<size_t>(node)],
                             addresses.empty() ? nullptr : addresses.data(),
                             120'000,
                             0};
    ddh::call(table.init, instance.get(), &init);
    group = table.world(instance.get());
    int32_t my_rank = -1, size = -1;
    ddh::call(table.group_info, instance.get(), group, &my_rank, &size, &caps);
    if (my_rank != rank || size != world) ddh::fail(DDH_INTERNAL, "group_info: rank ", my_rank, " of ", size);
  }
  using Collective = ddh_rc (*)(ddh_inst*, const ddh_coll*, ddh_err*) noexcept;
  void call(Collective collective, const void* send, void* recv, uint64_t count, int32_t dtype = DDH_F32,
            int32_t op = DDH_SUM, const uint64_t* counts = nullptr, int32_t root = 0) {
    const ddh_coll c{sizeof c, dtype, op, root, send, recv, count, counts, group, nullptr, "test", nullptr, nullptr};
    ddh::call(collective, instance.get(), &c);
  }
  [[nodiscard]] bool has(uint32_t cap) const { return (caps & cap) != 0; }
  // Whether the transport has the features that a test needs; prints the missing one.
  [[nodiscard]] bool offers(bool it, const char* what) const {
    if (!it && rank == 0)
      std::fprintf(stderr, "skipped for %s, world %d: it has no %s\n", instance.plugin().id().c_str(), world, what);
    return it;
  }
  [[nodiscard]] const ddh_comm_shared_api& shared() const { return *shared_or_null; }

  const PreparedRun& plan;
  RankServices services;
  PluginSeat seat;
  Instance instance;
  const ddh_comm_backend_api& table;
  const ddh_comm_shared_api* const shared_or_null;
  const int32_t rank, world;
  std::vector<const char*> addresses;  // of the hosts; empty: there is one
  uint32_t caps = 0;
  ddh_group* group = nullptr;
};

// `staging_bytes`: of a transport whose ranks are on one machine; empty: its default.
inline Outcome run_world(const std::string& transport, int world, const std::function<void(CommRank&)>& body,
                         uint32_t reduce_block = 1, const std::string& staging_bytes = "65536") {
  const Tasks tasks = are_tasks() ? join_tasks(world) : Tasks{true, nullptr};
  if (!tasks.is_this_world) return {kLeftOut, "left out"};
  Cluster* const others = tasks.others.get();
  Registry registry(&host_interface, DDHOST_BUILD_DIR, linked_plugins());
  std::vector<Override> settings = {{"comm.plugin", transport, "test"}, {"model.plugin", test_plugin("toy"), "test"}};
  if (!staging_bytes.empty() && (transport == "loop" || transport == "shm"))
    settings.push_back({"comm.staging_bytes", staging_bytes, "test"});
  if (const char* bypass = std::getenv("DDHOST_COMM_BYPASS_CACHES"); bypass != nullptr && transport == "shm")
    settings.push_back({"comm.bypass_caches", bypass, "test"});
  const PreparedRun plan =
      prepare_run(UserConfig::read("", settings), registry,
                  {.device = {"cpu", "a test"}, .world_size = world, .has_other_launchers = others != nullptr});
  LaunchArgs args;
  args.world_size = world;
  args.threads = plan.ranks_are_threads;
  args.cluster = others;
  args.failure_grace = args.grace_after_others = std::chrono::seconds(10);  // a test measures how long ranks wait
  return launch(args, [&](const RankSeat& seat) {
    // As in the program: a write to a connection that a peer has ended is an error of the transport, and no signal.
    if (!plan.ranks_are_threads) std::signal(SIGPIPE, SIG_IGN);
    CommRank rank(plan, seat, reduce_block);
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

}  // namespace ddhost::test
