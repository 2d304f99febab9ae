// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/rank_log.hpp: a rank's log: every line goes to <run.dir>/log.txt; rank 0's, and every rank's warnings, to stderr.
#pragma once

#include <memory>

#include "engine/loop/run_plan.hpp"
#include "engine/services/rank_seat.hpp"
#include "engine/services/run_config.hpp"

namespace spdlog {
class logger;
}

namespace ddhost {

std::shared_ptr<spdlog::logger> make_rank_log(const RunPlan& plan, const RunConfig& config, const RankSeat& seat);

}  // namespace ddhost
