// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/patience.hpp"

#include "engine/numerics/number_text.hpp"

namespace ddhost {

Patience::Patience(const TrainSetup& setup, const std::vector<Evaluation>& evaluations)
    : patience_(setup.services.config.get<int64_t>("train.patience")) {
  const RunConfig& config = setup.services.config;
  if (patience_ > 0)
    metric_.emplace(setup, evaluations,
                    EvaluatedMetric::Options{ddh::str("train.patience=", patience_), "train.patience_metric",
                                             config.get<std::string>("train.patience_metric"),
                                             config.get<std::string>("train.patience_mode")});
}

void Patience::evaluated(int64_t step, int32_t program, std::span<const ReportedValue> values) {
  if (!metric_) return;
  const std::optional<bool> is_better = metric_->is_better(step, program, values);
  if (is_better) without_better_ = *is_better ? 0 : without_better_ + 1;
}

std::string Patience::verdict() const {
  if (!metric_ || without_better_ < patience_) return "";
  const BestState& state = metric_->state();
  const std::string best =
      state.best.value ? ddh::str(number_text(*state.best.value), " at step ", state.best.step) : "none";
  return ddh::str("val_", state.metric, " has not improved in ", without_better_, " evaluations (best: ", best,
                  "), so the run ends here (train.patience)");
}

PatienceState Patience::state() const {
  return metric_ ? PatienceState{metric_->state(), without_better_} : PatienceState{};
}

std::string Patience::restore(const PatienceState& saved) {
  if (!metric_) return "";
  std::string forgotten = metric_->restore(saved.best);
  if (forgotten.empty()) without_better_ = saved.without_better;
  return forgotten;
}

}  // namespace ddhost
