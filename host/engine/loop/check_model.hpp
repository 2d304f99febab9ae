// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/check_model.hpp: checks a model's description before it is used.
#pragma once

#include <vector>

#include "ddh/ddh.h"
#include "engine/calls/plugin.hpp"
#include "engine/services/run_config.hpp"

namespace ddhost {

// Throws ddh::Error naming the unit, parameter or program that breaks a rule of ddh/kind/model.h. `uses`: ddh_desc.uses of
// its plugin.
void check_model(const ddh_model_desc& model, uint64_t uses);

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
