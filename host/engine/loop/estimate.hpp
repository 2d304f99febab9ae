// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/estimate.hpp: the model's estimate of a program's cost (ddh_model_api.estimate) and the speed of this machine,
// for the summary.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "engine/calls/plugin_caller.hpp"
#include "engine/record/run_output.hpp"
#include "engine/record/summary.hpp"
#include "engine/settings/run_programs.hpp"

namespace ddhost {

// The cost of one micro-batch of `n_samples`. Recomputed forwards do not count. nullopt: the model has no estimates
// (its table has none, or it returns DDH_NOT_FOUND).
std::optional<WorkEstimate> estimate_program(const PluginCaller& call, ddh_inst* model, const ddh_model_api& table,
                                             const ProgramOps& ops, uint32_t n_samples);

// FLOPs of one call of the model with a micro-batch of `n_samples`; nullopt: it does not say.
std::optional<double> call_flops(const PluginCaller& call, ddh_inst* model, const ddh_model_api& table,
                                 const UnitWork& work, uint32_t n_samples);

// The most that one micro-batch takes at once, with recomputation as in `ops`.
std::optional<uint64_t> peak_activation_bytes(const PluginCaller& call, ddh_inst* model, const ddh_model_api& table,
                                              const ProgramOps& ops, uint32_t n_samples);

using WorkEstimates = std::map<WorkKind, WorkEstimate>;

// Of the training programs that have an estimate.
std::vector<ProgramWork> work_done(const WorkEstimates& estimates, const ddh_model_desc& model,
                                   const std::map<WorkKind, RunOutput::Work>& done);

// The device measures for some milliseconds, if it can. `threads`: of each rank, on a device with host memory.
RankPeak rank_peak(const RunConfig& config, const Device& device, int threads);

}  // namespace ddhost
