// SPDX-License-Identifier: Apache-2.0
#include "transport.hpp"

#include <algorithm>
#include <functional>

namespace same_host {
namespace {

constexpr uint32_t kJoinTimeoutMs = 120'000;

}  // namespace

Transport::Transport(const ddh_create& create, std::unique_ptr<Memory> memory)
    : CommShared(create), memory_(std::move(memory)) {}

void Transport::init(const ddh_comm_init& args) {
  init_ = ddh::copy_of(args);
  if (args.reduce_block == 0)
    ddh::fail(DDH_INVALID_ARGUMENT,
              "reduce_block is 0, but a block of a sum has at least 1 rank; give 1 for no blocks");
  GroupSettings settings;
  settings.name = ddh::str("world ", args.run_id);
  for (int32_t r = 0; r < args.world_size; ++r) settings.world_ranks.push_back(r);
  settings.rank = args.rank;
  settings.reduce_block = args.reduce_block;
  world_.store(&make_group(std::move(settings)));
}

Group& Transport::make_group(GroupSettings settings) {
  settings.spin_us = options.i64("spin_us");
  settings.staging_bytes = ControlLayout::align(static_cast<uint64_t>(options.i64("staging_bytes")));
  const Group::Rendezvous rendezvous{[this](const std::string& key, const Ticket& ticket) {
                                       ddh::call(host.kv->set, host.h, key.c_str(), &ticket, sizeof ticket);
                                     },
                                     [this](const std::string& key) {
                                       Ticket ticket{};
                                       uint64_t bytes = sizeof ticket;
                                       ddh::call(host.kv->get, host.h, key.c_str(), &ticket, &bytes, kJoinTimeoutMs);
                                       return ticket;
                                     }};
  groups_.push_back(std::make_unique<Group>(*memory_, rendezvous, std::move(settings), world_.load()));
  const int64_t own_bytes = static_cast<int64_t>(groups_.back()->control_bytes_per_rank());
  if (host.alloc != nullptr) host.alloc->account(host.h, DDH_TAG_COMM, own_bytes);
  return *groups_.back();
}

ddh_group* Transport::group_create(const char* name, const int32_t* ranks, uint32_t n) {
  GroupSettings settings;
  settings.world_ranks.assign(ranks, ranks + n);
  // The key by which the members find each other. Groups with other members, or created again, have other keys.
  settings.name = ddh::str(name, ' ', init_.run_id, " of");
  for (const int32_t rank : settings.world_ranks) settings.name += ddh::str(' ', rank);
  const auto made_before = std::count_if(groups_.begin(), groups_.end(), [&](const std::unique_ptr<Group>& group) {
    return group->name().starts_with(settings.name + ", ");
  });
  settings.name += ddh::str(", ", made_before);
  const auto me = std::find(settings.world_ranks.begin(), settings.world_ranks.end(), init_.rank);
  const auto not_ascending =
      std::adjacent_find(settings.world_ranks.begin(), settings.world_ranks.end(), std::greater_equal<>());
  if (me == settings.world_ranks.end() || not_ascending != settings.world_ranks.end() ||
      settings.world_ranks.front() < 0 || settings.world_ranks.back() >= init_.world_size) {
    ddh::fail(DDH_INVALID_ARGUMENT, "group '", name, "' needs ascending ranks below ", init_.world_size, " with rank ",
              init_.rank, " among them");
  }
  settings.rank = static_cast<int32_t>(me - settings.world_ranks.begin());
  settings.reduce_block = n;  // one block: reduce_block applies to the group of all ranks
  return handle(make_group(std::move(settings)));
}

void Transport::group_info(ddh_group* group, int32_t& rank, int32_t& size, uint32_t& caps) {
  rank = of(group).rank();
  size = of(group).size();
  caps = DDH_COMM_SHARED_VIEW | DDH_COMM_ORDERED_SUM | DDH_COMM_INITIAL;
}

void Transport::abort(const char* reason) {
  if (Group* const world = world_.load()) world->abort(reason);
}

ddh_region* Transport::region_create(ddh_group* group, const char* name, uint64_t bytes, void*& base) {
  regions_.push_back(std::make_unique<RegionHandle>(RegionHandle{&of(group), of(group).region_create(name, bytes)}));
  base = regions_.back()->region->mapping->base();
  return reinterpret_cast<ddh_region*>(regions_.back().get());
}

void Transport::region_destroy(ddh_region* region) {
  const auto at = std::find_if(regions_.begin(), regions_.end(), [region](const std::unique_ptr<RegionHandle>& mine) {
    return mine.get() == reinterpret_cast<RegionHandle*>(region);
  });
  if (at == regions_.end()) return;
  (*at)->group->region_destroy((*at)->region);
  regions_.erase(at);
}

}  // namespace same_host
