// SPDX-License-Identifier: Apache-2.0
#include "transport.hpp"

#include <algorithm>

namespace same_host {
namespace {

constexpr uint32_t kJoinTimeoutMs = 120'000;
constexpr uint32_t kCaps = DDH_COMM_SHARED_VIEW | DDH_COMM_ORDERED_SUM | DDH_COMM_INITIAL;

}  // namespace

Transport::Transport(const ddh_create& create, std::unique_ptr<Memory> memory)
    : CommShared(create), memory_(std::move(memory)) {}

void Transport::init(const ddh_comm_init& args) {
  const ddh_comm_init known = ddh::copy_of(args);
  if (known.reduce_block == 0)
    ddh::fail(DDH_INVALID_ARGUMENT,
              "reduce_block is 0, but a block of a sum has at least 1 rank; give 1 for no blocks");
  first_rank_ = known.first_rank;
  groups_.init(known, kJoinTimeoutMs);
  world_.store(&make_group(groups_.world(), known.reduce_block));
}

Group& Transport::make_group(ddh::GroupPlace place, uint32_t reduce_block) {
  const Group::Rendezvous rendezvous{[this](const std::string& key, const Ticket& ticket) { groups_.set(key, ticket); },
                                     [this](const std::string& key) { return groups_.get<Ticket>(key); }};
  for (int32_t& rank : place.ranks) rank += first_rank_;  // for messages
  GroupSettings settings{std::move(place)};
  settings.reduce_block = reduce_block;
  settings.spin_us = options.i64("spin_us");
  settings.staging_bytes = staging_bytes();
  settings.bypass_caches = bypass_named(options.text("bypass_caches"));
  Group& group = groups_.add(std::make_unique<Group>(*memory_, rendezvous, std::move(settings), world_.load()));
  const int64_t own_bytes = static_cast<int64_t>(group.control_bytes_per_rank());
  if (host.alloc != nullptr) host.alloc->account(host.h, DDH_TAG_COMM, own_bytes);
  return group;
}

ddh_group* Transport::group_create(const char* name, const int32_t* ranks, uint32_t n) {
  // One block: reduce_block applies to the group of all ranks.
  return handle(make_group(groups_.place(name, {ranks, ranks + n}), n));
}

void Transport::group_info(ddh_group* group, int32_t& rank, int32_t& size, uint32_t& caps) {
  rank = of(group).rank();
  size = of(group).size();
  caps = kCaps;
}

void Transport::plan(const ddh_comm_init&, uint32_t n_ranks, ddh_comm_plan& out) {
  out.caps = kCaps;
  out.bytes = ControlLayout(static_cast<int32_t>(n_ranks), staging_bytes()).bytes_per_rank();
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
