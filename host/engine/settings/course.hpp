// SPDX-License-Identifier: Apache-2.0
//
// engine/settings/course.hpp: the course of a run, from the configuration and the model: its phases (train.phases), and
// the order of its steps and epochs. A run without phases has one, in which the programs of train.programs take turns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ddh/ddh.h"
#include "engine/samples/train_order.hpp"
#include "engine/services/run_config.hpp"

namespace ddhost {

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

// Samples of a micro-batch: data.micro_batch.<program>, or data.micro_batch.
uint64_t micro_batch_of(const RunConfig& config, const ddh_program_desc& program);

// The order of a training program's samples, epoch after epoch; `train_programs`: those of the run. Throws where data.order
// names a file for several programs, or there are no samples.
SampleOrder order_of(const RunConfig& config, const ddh_model_desc& model, const std::vector<int32_t>& train_programs,
                     int32_t program);
// The order of an evaluation: the same in each.
SampleOrder evaluation_order(uint64_t n_samples);

// The order of all steps. Throws if data.micro_batch names no program of the model, or the data has too few samples.
TrainOrder make_order(const RunConfig& config, const ddh_model_desc& model, const std::vector<PhaseSpec>& phases,
                      uint64_t world_size);
// Throws if a step leaves a micro-batch without samples. For models that don't take one; before anything is computed.
void require_no_empty(const TrainOrder& order, const RunConfig& config, const ddh_model_desc& model);

// "24 samples a step (6 x 2 ranks x 2 micro-batches)"
std::string batch_text(const TrainOrder& order, const ddh_model_desc& model, uint64_t world_size,
                       uint64_t grad_accum_steps);

// The position in its program's data after a step.
EpochPlace epoch_place(const TrainOrder& order, const TrainStep& step);

}  // namespace ddhost
