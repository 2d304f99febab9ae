// SPDX-License-Identifier: Apache-2.0
//
// schedule/one_cycle.hpp: torch's OneCycleLR: from max_lr / div_factor up to max_lr over pct_start of decay_steps, then down
// to the start / final_div_factor; with three_phase down to the start first, as slowly as up. The last rate holds.
#pragma once

#include "schedule/curve.hpp"
#include "schedule/options.hpp"

namespace ddhost {

Curve one_cycle_curve(const ScheduleOptions& options);

}  // namespace ddhost
