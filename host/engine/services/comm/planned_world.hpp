// SPDX-License-Identifier: Apache-2.0
//
// engine/services/comm/planned_world.hpp: the ranks of a run that does not exist, for `ddhost plan`. It has the table of a
// transport. Groups can be made, and each takes the memory that the run's transport says; every collective is refused.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <numeric>
#include <vector>

#include "ddh/ddh.h"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {

class PlannedWorld {
 public:
  // What the run's transport says of a group of world ranks.
  using PlanOf = std::function<ddh_comm_plan(const std::vector<int32_t>& ranks)>;

  // The place of rank `rank`.
  PlannedWorld(int32_t rank, int32_t world_size, PlanOf plan_of) : rank_(rank), plan_of_(std::move(plan_of)) {
    std::vector<int32_t> all(static_cast<size_t>(world_size));
    std::iota(all.begin(), all.end(), 0);
    add(rank, all);
  }
  PlannedWorld(const PlannedWorld&) = delete;
  PlannedWorld& operator=(const PlannedWorld&) = delete;

  [[nodiscard]] ddh_inst* inst() { return reinterpret_cast<ddh_inst*>(this); }
  [[nodiscard]] static const ddh_comm_backend_api& table() {
    static const ddh_comm_backend_api planned = make_table();
    return planned;
  }
  // For a transport whose ranks share memory.
  [[nodiscard]] static const ddh_comm_shared_api& shared_table() {
    static const ddh_comm_shared_api planned = make_shared_table();
    return planned;
  }
  // Of all groups, on this rank.
  [[nodiscard]] uint64_t bytes() const {
    uint64_t sum = 0;
    for (const Group& group : groups_) sum += group.plan.bytes;
    return sum;
  }

 private:
  struct Group {
    int32_t rank, size;
    ddh_comm_plan plan;
  };

  static PlannedWorld& of(ddh_inst* inst) { return *reinterpret_cast<PlannedWorld*>(inst); }
  static ddh_group* handle(Group& group) { return reinterpret_cast<ddh_group*>(&group); }

  Group& add(int32_t rank, const std::vector<int32_t>& ranks) {
    return groups_.emplace_back(Group{rank, static_cast<int32_t>(ranks.size()), plan_of_(ranks)});
  }
  Group& create(const int32_t* ranks, uint32_t n) {
    const int32_t* const mine = std::find(ranks, ranks + n, rank_);
    if (mine == ranks + n)
      ddh::fail(DDH_INVALID_ARGUMENT, "rank ", rank_, " makes a group of ", n, " ranks, and is none of them");
    return add(static_cast<int32_t>(mine - ranks), {ranks, ranks + n});
  }

  static ddh_rc refuse(ddh_err* err) {
    return ddh::guard(err, [] {
      ddh::fail(DDH_FAILED_PRECONDITION,
                "in a plan there are no other ranks: no plugin may communicate or make windows, ",
                "and a strategy with DDH_CAP_DRY_ATTACH leaves that to materialize");
    });
  }
  static ddh_rc collective(ddh_inst*, const ddh_coll*, ddh_err* err) noexcept { return refuse(err); }

  static ddh_comm_backend_api make_table() {
    ddh_comm_backend_api t{};
    t.struct_size = sizeof t;
    t.world = [](ddh_inst* i) noexcept { return handle(of(i).groups_.front()); };
    t.group_create = [](ddh_inst* i, const char*, const int32_t* ranks, uint32_t n, ddh_group** out,
                        ddh_err* err) noexcept {
      return ddh::guard(err, [&] { *out = handle(of(i).create(ranks, n)); });
    };
    t.group_info = [](ddh_inst*, ddh_group* group, int32_t* rank, int32_t* size, uint32_t* caps, ddh_err*) noexcept {
      const Group& g = *reinterpret_cast<Group*>(group);
      *rank = g.rank, *size = g.size, *caps = g.plan.caps;
      return DDH_OK;
    };
    t.all_reduce = t.reduce_scatter = t.all_gather = t.broadcast = t.all_to_all = t.send = t.recv = collective;
    t.barrier = [](ddh_inst*, ddh_group*, ddh_err* err) noexcept { return refuse(err); };
    return t;
  }

  static ddh_comm_shared_api make_shared_table() {
    ddh_comm_shared_api t{};
    t.struct_size = sizeof t;
    t.region_create = [](ddh_inst*, ddh_group*, const char*, uint64_t, void**, ddh_region**, ddh_err* err) noexcept {
      return refuse(err);
    };
    t.region_destroy = [](ddh_inst*, ddh_region*) noexcept {};
    t.marks_create = [](ddh_inst*, ddh_group*, uint32_t, uint32_t*, ddh_err* err) noexcept { return refuse(err); };
    t.mark_set = [](ddh_inst*, ddh_group*, uint32_t, uint64_t) noexcept {};
    t.mark_wait = [](ddh_inst*, ddh_group*, int32_t, uint32_t, uint64_t, const char*, ddh_err* err) noexcept {
      return refuse(err);
    };
    return t;
  }

  const int32_t rank_;
  const PlanOf plan_of_;
  std::deque<Group> groups_;  // elements stay in place; the first has all ranks
};

}  // namespace ddhost
