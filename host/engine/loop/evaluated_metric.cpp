// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/evaluated_metric.hpp"

#include <algorithm>
#include <cmath>

#include "engine/loop/reports.hpp"

namespace ddhost {

EvaluatedMetric::EvaluatedMetric(const TrainSetup& setup, const std::vector<int32_t>& programs, const Options& options,
                                 std::string metric, bool higher_is_better)
    : metric_(std::move(metric)), higher_is_better_(higher_is_better) {
  if (programs.empty())
    ddh::fail(DDH_INVALID_ARGUMENT, options.wish, " goes by evaluations, and the run makes none; set train.eval_every ",
              "or train.eval_every_epochs");
  std::string all;
  for (const int32_t program : programs) {
    for (const std::string_view name : reported_names(*setup.model.programs[program])) {
      if (name == metric_ && program_ < 0) program_ = program;
      all += (all.empty() ? "" : ", ") + std::string(name);
    }
  }
  if (program_ < 0)
    ddh::fail(DDH_INVALID_ARGUMENT, options.metric_name, "='", metric_,
              "' is reported by no program that evaluates this run; they report ", all);
}

std::optional<bool> EvaluatedMetric::is_better(int64_t step, int32_t program, std::span<const ReportedValue> values,
                                               BestValue& best) const {
  if (program != program_) return std::nullopt;
  const auto at = std::find_if(values.begin(), values.end(), [&](const ReportedValue& v) { return v.name == metric_; });
  if (!std::isfinite(at->value)) return false;
  if (best.value && (higher_is_better_ ? at->value <= *best.value : at->value >= *best.value)) return false;
  best = {at->value, step};
  return true;
}

}  // namespace ddhost
