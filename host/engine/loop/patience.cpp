// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/patience.hpp"

#include <algorithm>
#include <cmath>

#include "engine/loop/reports.hpp"
#include "engine/numerics/number_text.hpp"

namespace ddhost {

Patience::Patience(const TrainSetup& setup, const std::vector<int32_t>& programs)
    : patience_(setup.services.config.get<int64_t>("train.patience")),
      metric_(setup.services.config.get<std::string>("train.patience_metric")),
      higher_is_better_(setup.services.config.get<std::string>("train.patience_mode") == "max") {
  if (patience_ == 0) return;
  if (programs.empty())
    ddh::fail(DDH_INVALID_ARGUMENT, "train.patience=", patience_,
              " counts evaluations, but the run makes none; set train.eval_every or train.eval_every_epochs");
  std::string all;
  for (const int32_t program : programs) {
    for (const std::string_view name : reported_names(*setup.model.programs[program])) {
      if (name == metric_ && program_ < 0) program_ = program;
      all += (all.empty() ? "" : ", ") + std::string(name);
    }
  }
  if (program_ < 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "train.patience_metric='", metric_,
              "' is not reported by any program that evaluates this run; they report ", all);
}

void Patience::evaluated(int64_t step, int32_t program, std::span<const ReportedValue> values) {
  if (program != program_) return;
  const auto at = std::find_if(values.begin(), values.end(), [&](const ReportedValue& v) { return v.name == metric_; });
  const bool is_better = std::isfinite(at->value) &&
                         (!state_.best || (higher_is_better_ ? at->value > *state_.best : at->value < *state_.best));
  if (is_better)
    state_ = {at->value, step, 0};
  else
    ++state_.without_better;
}

std::string Patience::verdict() const {
  if (patience_ == 0 || state_.without_better < patience_) return "";
  const std::string best = state_.best ? ddh::str(number_text(*state_.best), " at step ", state_.best_step) : "none";
  return ddh::str("val_", metric_, " has not improved in ", state_.without_better, " evaluations (best: ", best,
                  "), so the run ends here (train.patience)");
}

}  // namespace ddhost
