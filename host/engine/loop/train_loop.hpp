// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/train_loop.hpp: the loop over steps. It knows no strategy, no model and no optimizer.
#pragma once

#include "engine/data/train_order.hpp"
#include "engine/loop/phase_rates.hpp"
#include "engine/loop/train_setup.hpp"
#include "engine/monitor/monitor.hpp"

namespace ddhost {

struct TrainEnd {
  int64_t last_step;
  bool stopped;  // the run was asked to; the same on every rank
};

// Runs the steps of the order, fewer when the run is asked to stop.
TrainEnd train_loop(TrainSetup setup, const TrainOrder& order, PhaseRates& rates, Monitor& monitor);

}  // namespace ddhost
