// SPDX-License-Identifier: Apache-2.0
//
// engine/settings/course.hpp: the order of a run's steps and epochs, from the configuration and the model.
#pragma once

#include <string>
#include <vector>

#include "ddh/ddh.h"
#include "engine/samples/train_order.hpp"
#include "engine/services/run_config.hpp"
#include "engine/settings/phases.hpp"

namespace ddhost {

// What data.drop_last means for this run.
EpochEnd epoch_end(const RunConfig& config);

// Samples of a micro-batch: data.micro_batch.<program>, or data.micro_batch.
uint64_t micro_batch_of(const RunConfig& config, const ddh_program_desc& program);

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
