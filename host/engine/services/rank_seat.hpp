// SPDX-License-Identifier: Apache-2.0
//
// engine/services/rank_seat.hpp: the position of a rank in the run.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/calls/rank_record.hpp"
#include "engine/services/comm/kv.hpp"
#include "engine/services/nodes.hpp"

namespace ddhost {

// The data that a rank gets from the launcher. Valid while the rank's function runs.
struct RankSeat {
  int rank;
  std::shared_ptr<const Nodes> nodes;
  Kv& kv;
  RankRecord& record;
  uint64_t run_id;  // the same on all ranks, different for every run

  [[nodiscard]] int world_size() const { return nodes->world_size(); }
  [[nodiscard]] int node() const { return nodes->node(rank); }
  [[nodiscard]] int local_rank() const { return nodes->local_rank(rank); }
};

}  // namespace ddhost
