// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/train_loop.hpp: the loop over steps, with the work between the phases of a run. It does not depend on the
// strategy, model or optimizer.
#pragma once

#include "engine/checks/replicas.hpp"
#include "engine/loop/checkpointing.hpp"
#include "engine/loop/train_setup.hpp"
#include "engine/record/run_output.hpp"
#include "engine/samples/train_order.hpp"
#include "engine/settings/phase_rates.hpp"

namespace ddhost {

// The same on every rank.
struct TrainEnd {
  int64_t last_step;
  bool stopped;  // the run was asked to stop
  bool idle;     // a resumed run that had no step and no evaluation left, so that it has done nothing
};

// Runs the steps of the order, fewer if the run is asked to stop: from the first, or after that of a checkpoint.
TrainEnd train_loop(const TrainSetup& setup, const TrainOrder& order, PhaseRates& rates, RunOutput& output,
                    Checkpointing& checkpoints, ReplicaChecks& replicas);

}  // namespace ddhost
