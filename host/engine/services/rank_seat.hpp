// SPDX-License-Identifier: Apache-2.0
//
// engine/services/rank_seat.hpp: the position of a rank in the run.
#pragma once

#include <cstdint>

#include "engine/calls/rank_record.hpp"
#include "engine/services/comm/kv.hpp"

namespace ddhost {

// The data that a rank gets from the launcher. Valid while the rank's function runs.
struct RankSeat {
  int rank;
  int world_size;
  int local_rank;  // within its node
  int node;
  Kv& kv;
  RankRecord& record;
  uint64_t run_id;  // the same on all ranks, different for every run
};

}  // namespace ddhost
