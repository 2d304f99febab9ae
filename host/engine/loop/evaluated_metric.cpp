// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/evaluated_metric.hpp"

#include <algorithm>
#include <cmath>

namespace ddhost {

EvaluatedMetric::EvaluatedMetric(const TrainSetup& setup, const std::vector<Evaluation>& evaluations,
                                 const Options& options)
    : state_{options.metric, options.mode, 0, {}}, option_(options.metric_name) {
  if (evaluations.empty())
    ddh::fail(DDH_INVALID_ARGUMENT, options.wish, " goes by evaluations, and the run makes none; set train.eval_every ",
              "or train.eval_every_epochs");
  std::string all, same;  // names, and those of the same metric in several programs
  size_t found = 0;
  for (const Evaluation& evaluation : evaluations) {
    const ddh_program_desc& program = *setup.model.programs[evaluation.program()];
    for (const std::string_view name : reported_names(program)) {
      const std::string full = ddh::str(program.name, ".", name);
      all += (all.empty() ? "" : ", ") + (evaluations.size() > 1 ? full : std::string(name));
      if (name != options.metric && full != options.metric) continue;
      same += (same.empty() ? "" : ", ") + full;
      ++found;
      name_ = name;
      program_ = evaluation.program();
      state_.samples = evaluation.n_samples();
    }
  }
  if (found == 0)
    ddh::fail(DDH_INVALID_ARGUMENT, option_, "='", options.metric,
              "' is reported by no program that evaluates this run; they report ", all);
  if (found > 1)
    ddh::fail(DDH_INVALID_ARGUMENT, option_, "='", options.metric, "' is reported by ", found,
              " programs that evaluate this run; give one of ", same);
}

std::optional<bool> EvaluatedMetric::is_better(int64_t step, int32_t program, std::span<const ReportedValue> values) {
  if (program != program_) return std::nullopt;
  const auto at = std::find_if(values.begin(), values.end(), [&](const ReportedValue& v) { return v.name == name_; });
  if (!std::isfinite(at->value)) return false;
  const std::optional<double>& best = state_.best.value;
  if (best && (state_.mode == "max" ? at->value <= *best : at->value >= *best)) return false;
  state_.best = {at->value, step};
  return true;
}

std::string EvaluatedMetric::restore(const BestState& saved) {
  if (!saved.metric.empty() && (saved.metric != state_.metric || saved.mode != state_.mode))
    return ddh::str(option_, " was ", saved.metric, " (", saved.mode, ") before and is ", state_.metric, " (",
                    state_.mode, ") now: the best value begins anew");
  if (saved.samples != 0 && saved.samples != state_.samples)
    return ddh::str(option_, "=", state_.metric, " was evaluated on ", saved.samples, " samples before and is on ",
                    state_.samples, " now: the best value begins anew");
  state_.best = saved.best;
  return "";
}

}  // namespace ddhost
