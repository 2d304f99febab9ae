// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/estimate.hpp: what the model says that a program costs (ddh_model_api.estimate), for the summary.
#pragma once

#include <optional>

#include "engine/calls/plugin_caller.hpp"
#include "engine/loop/run_programs.hpp"
#include "engine/monitor/summary.hpp"

namespace ddhost {

// Of one micro-batch of `n_samples`. A second forward counts as no work: it makes no progress. Nothing where the model
// makes no estimates (its table has none, or it answers DDH_NOT_FOUND).
std::optional<WorkEstimate> estimate_program(const PluginCaller& call, ddh_inst* model, const ddh_model_api& table,
                                             const ProgramOps& ops, uint32_t n_samples);

}  // namespace ddhost
