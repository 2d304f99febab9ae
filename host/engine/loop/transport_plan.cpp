// SPDX-License-Identifier: Apache-2.0
//
// What the transports of a run take for groups of its ranks, before or after these are made.
#include "ddh/sdk/plugin.hpp"
#include "engine/loop/rank_setup.hpp"
#include "engine/services/comm/layered_comm.hpp"

namespace ddhost {
namespace {

// nullopt: the transport does not say. Error of another kind is the transport's own.
std::optional<ddh_comm_plan> ask(const Instance& comm, const ddh_comm_init& init, size_t n_ranks) {
  const auto& table = comm.require<ddh_comm_backend_api>(DDH_COMM_BACKEND_IFACE, DDH_COMM_BACKEND_API_MIN_SIZE);
  ddh_comm_plan out{};
  out.struct_size = sizeof out;
  if (!DDH_CAN(&table, ddh_comm_backend_api, plan)) return std::nullopt;
  try {
    comm.call(PluginCall::kPlan, table.plan, &init, static_cast<uint32_t>(n_ranks), &out);
  } catch (const ddh::Error& error) {
    if (error.code() != DDH_UNIMPLEMENTED) throw;
    return std::nullopt;
  }
  return out;
}

}  // namespace

std::optional<RankSetup::GroupPlan> RankSetup::transport_plan(const std::vector<int32_t>& ranks, bool is_world) const {
  const ddh_device_info device = services_.device->info();
  const ddh_comm_init init = comm_init(device);
  if (plan_.has_inside_comm()) return layers_plan(init, ranks, is_world);
  const bool two = plan_.has_host_comm();
  const std::optional<ddh_comm_plan> main = ask(two ? host_comm_ : comm_, init, ranks.size());
  if (!main || !two) return main ? std::optional(GroupPlan{main->caps, main->bytes, 0}) : std::nullopt;
  const std::optional<ddh_comm_plan> of_device = ask(comm_, init, ranks.size());
  if (!of_device) return std::nullopt;
  return GroupPlan{main->caps & of_device->caps, main->bytes, of_device->bytes};
}

ddh_plan RankSetup::whole_plan() const {
  ddh_plan out = memory_plan_;
  uint64_t transports = 0;
  bool is_known = true;
  services_.comm->for_each_group([&](const std::vector<int32_t>& ranks, bool is_world) {
    const std::optional<GroupPlan> group = transport_plan(ranks, is_world);
    is_known = is_known && group.has_value();
    transports += group ? group->host + group->device : 0;
  });
  out.comm_bytes = is_known ? out.comm_bytes + transports + buffer_bytes() + codec_bytes_ : DDH_PLAN_UNKNOWN;
  return out;
}

// Of two transports: a group inside a host belongs to one, all others to the other. For all ranks both are used.
std::optional<RankSetup::GroupPlan> RankSetup::layers_plan(const ddh_comm_init& init, const std::vector<int32_t>& ranks,
                                                           bool is_world) const {
  const Nodes& nodes = *services_.seat.nodes;
  const InitInside inside(init, nodes);
  const bool is_inside = LayeredComm::is_inside(nodes, ranks.data(), static_cast<uint32_t>(ranks.size()));
  const std::optional<ddh_comm_plan> group =
      is_inside ? ask(inside_comm_, inside.get(), ranks.size()) : ask(comm_, init, ranks.size());
  if (!group) return std::nullopt;
  if (is_inside) return GroupPlan{group->caps, group->bytes, 0};
  GroupPlan out{group->caps & ~uint32_t{DDH_COMM_SHARED_VIEW}, group->bytes, 0};
  if (!is_world) return out;
  const auto of_host = ask(inside_comm_, inside.get(), static_cast<size_t>(inside.get().world_size));
  if (!of_host) return std::nullopt;
  out.host += of_host->bytes + LayeredComm::bytes(nodes, services_.seat.rank);
  if (nodes.ranks_per_node() <= 0) return out;
  const auto of_peers = ask(comm_, init, static_cast<size_t>(nodes.count()));
  if (!of_peers) return std::nullopt;
  out.host += of_peers->bytes;
  return out;
}

}  // namespace ddhost
