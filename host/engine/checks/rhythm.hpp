// SPDX-License-Identifier: Apache-2.0
//
// engine/checks/rhythm.hpp: how often all ranks of a run agree (ddh_rhythm), and what a run can't do with a strategy whose
// ranks agree more rarely than in every step.
#pragma once

#include <cstdint>
#include <string>

#include "engine/calls/instance.hpp"
#include "engine/services/run_config.hpp"
#include "engine/settings/course.hpp"

namespace ddhost {

// Asked after attach: at least 1. Throws if the strategy gives no valid number.
uint32_t rhythm_of(const Instance& strategy, const ddh_strategy_api& table);

// Whether the run scales the loss, which all ranks decide in every step.
bool scales_loss(const RunConfig& config);

// Throws, in one sentence with the cure, if the run needs all ranks in a step between. `strategy`: "strategy 'x'".
void check_rhythm(uint32_t world_every, const std::string& strategy, const RunConfig& config,
                  const ddh_model_desc& model, const std::vector<PhaseSpec>& phases);

// A schedule that goes by the loss of every step would see it on no rank in the steps between. `reader`: its name; "": none.
void check_rhythm_of_rates(int64_t world_every, const std::string& strategy, const std::string& reader,
                           bool reads_evaluations);

}  // namespace ddhost
