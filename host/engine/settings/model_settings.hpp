// SPDX-License-Identifier: Apache-2.0
//
// engine/settings/model_settings.hpp: what the configuration asks of the model: dtype, recomputation, programs.
#pragma once

#include <vector>

#include "ddh/ddh.h"
#include "engine/calls/plugin.hpp"
#include "engine/services/run_config.hpp"

namespace ddhost {

// The dtype of precision.compute. Throws if the model does not support it.
int32_t compute_dtype(const RunConfig& config, const Plugin& model);

// train.recompute. Throws if the model can't run a forward twice.
uint32_t recompute_every(const RunConfig& config, const Plugin& model);

// The programs of train.programs in the order of their turns; all training programs if it is empty. Throws if the model
// lacks one.
std::vector<int32_t> train_programs(const RunConfig& config, const ddh_model_desc& model);

// The first program of a kind, or -1.
int32_t find_program(const ddh_model_desc& model, int32_t kind);

}  // namespace ddhost
