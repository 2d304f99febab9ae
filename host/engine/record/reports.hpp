// SPDX-License-Identifier: Apache-2.0
//
// engine/record/reports.hpp: the values that a program reports, computed from the folded sums and counts of its metrics.
// Every reader (metrics.jsonl, the progress line, schedules) gets the same values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ddh/ddh.h"
#include "engine/calls/plugin_caller.hpp"
#include "engine/services/optim/micro_metrics.hpp"

namespace ddhost {

// The names of a program's values: `reported`, or those of its metrics.
std::vector<std::string_view> reported_names(const ddh_program_desc& program);
// The index of "loss" among them, or -1.
int32_t loss_place(const ddh_program_desc& program);

struct Reported {
  std::vector<ReportedValue> values;
  std::vector<double> derived;  // for the model; kept, so that the next report needs no memory
};

// Writes a program's values to `out`. The model computes derived values; other values are sum / count.
void report(const PluginCaller& call, ddh_inst* model, const ddh_model_api& table, const ddh_model_desc& desc,
            int32_t program, const FoldedMetrics& folded, Reported& out);

// Throws ddh::Error naming the program or buffer whose outputs break a rule of ddh/kind/model.h: names of metrics and of the
// evaluating program, derived values without `derive`, folded buffers without `contribution`.
void check_outputs(const ddh_model_desc& model, const ddh_model_api& table);

}  // namespace ddhost
