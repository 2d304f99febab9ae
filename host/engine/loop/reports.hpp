// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/reports.hpp: what a program reports: named values, made of the folded sums and counts of its metrics.
// Every reader (metrics.jsonl, the progress line, schedules) gets the same ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ddh/ddh.h"
#include "engine/calls/plugin_caller.hpp"
#include "engine/services/micro_metrics.hpp"

namespace ddhost {

// The names that a program reports under: `reported`, or those of its metrics.
std::vector<std::string_view> reported_names(const ddh_program_desc& program);
// The place of "loss" among them, or -1.
int32_t loss_place(const ddh_program_desc& program);

// What a program reports. Where it has derived values the model makes them, else each is sum / count. Fills `out`.
void report(const PluginCaller& call, ddh_inst* model, const ddh_model_api& table, const ddh_model_desc& desc,
            int32_t program, const FoldedMetrics& folded, std::vector<ReportedValue>& out);

// Throws ddh::Error naming the program or buffer whose outputs break a rule of ddh/kind/model.h: names of metrics and of the
// evaluating program, derived values without `derive`, folded buffers without `contribution`.
void check_outputs(const ddh_model_desc& model, const ddh_model_api& table);

}  // namespace ddhost
