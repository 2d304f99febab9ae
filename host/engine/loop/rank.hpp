// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/rank.hpp: one rank of a run, from joining the other ranks to the last table of its output.
#pragma once

#include <memory>

#include "engine/services/rank_seat.hpp"
#include "engine/services/run_config.hpp"
#include "engine/settings/run_plan.hpp"

namespace ddhost {

// Runs one rank and returns its exit code. `config` is this rank's own. Throws ddh::Error after it has informed the
// other ranks.
int run_rank(const RunPlan& plan, std::unique_ptr<RunConfig> config, const RankSeat& seat);

}  // namespace ddhost
