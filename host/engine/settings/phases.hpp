// SPDX-License-Identifier: Apache-2.0
//
// engine/settings/phases.hpp: the phases of a run (train.phases), read for one model. A run without them has one phase, in
// which the programs of train.programs take turns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ddh/ddh.h"
#include "engine/services/run_config.hpp"

namespace ddhost {

constexpr int64_t kMostMicroBatch = 1048576;  // samples

struct PhaseSpec {
  std::vector<int32_t> turns;  // training programs, one per step
  int64_t steps = 0;           // or:
  int64_t epochs = 0;          // of the first turn's program
  std::optional<double> lr;
  std::string schedule;                          // section of a schedule of its own; "": the run's
  bool new_state = false;                        // resets the optimizer state when the phase begins
  std::optional<uint64_t> micro_batch;           // instead of data.micro_batch
  std::vector<int32_t> updates_before, updates;  // update programs before its first step, and after its last

  // Whether its rates count only the phase's own steps, over all cycles.
  [[nodiscard]] bool has_own_rates() const { return lr.has_value() || !schedule.empty(); }
};

// Throws ddh::Error naming the phase (from 1) and what is wrong with it.
std::vector<PhaseSpec> run_phases(const RunConfig& config, const ddh_model_desc& model);

// Where the user names neither programs nor phases, and one optimizer: takes the programs that need another one out of the only
// phase, unless all do. So a model also trains where only the model is named. Returns a warning for each.
std::vector<std::string> take_out_programs_of_others(const RunConfig& config, const ddh_model_desc& model,
                                                     std::vector<PhaseSpec>& phases);

// The training programs of all phases: those of a single phase in turn, of several each once.
std::vector<int32_t> programs_of(const std::vector<PhaseSpec>& phases);
// The update programs that phases name, each once.
std::vector<int32_t> updates_of(const std::vector<PhaseSpec>& phases);

}  // namespace ddhost
