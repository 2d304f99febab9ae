// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/rank.hpp: one rank of a run, from joining the world to the last table.
#pragma once

#include "engine/loop/plan.hpp"
#include "launch/launch.hpp"

namespace ddhost {

// Runs one rank and returns its exit code. Throws ddh::Error; the other ranks have then been told.
int run_rank(const RunPlan& plan, const RankSeat& seat);

}  // namespace ddhost
