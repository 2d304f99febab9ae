// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/patience.hpp"

#include "engine/numerics/number_text.hpp"

namespace ddhost {

Patience::Patience(const TrainSetup& setup, const std::vector<int32_t>& programs)
    : patience_(setup.services.config.get<int64_t>("train.patience")),
      metric_name_(setup.services.config.get<std::string>("train.patience_metric")) {
  if (patience_ > 0)
    metric_.emplace(setup, programs,
                    EvaluatedMetric::Options{ddh::str("train.patience=", patience_), "train.patience_metric"},
                    metric_name_, setup.services.config.get<std::string>("train.patience_mode") == "max");
}

void Patience::evaluated(int64_t step, int32_t program, std::span<const ReportedValue> values) {
  if (!metric_) return;
  const std::optional<bool> is_better = metric_->is_better(step, program, values, state_.best);
  if (is_better) state_.without_better = *is_better ? 0 : state_.without_better + 1;
}

std::string Patience::verdict() const {
  if (patience_ == 0 || state_.without_better < patience_) return "";
  const std::string best =
      state_.best.value ? ddh::str(number_text(*state_.best.value), " at step ", state_.best.step) : "none";
  return ddh::str("val_", metric_name_, " has not improved in ", state_.without_better, " evaluations (best: ", best,
                  "), so the run ends here (train.patience)");
}

}  // namespace ddhost
