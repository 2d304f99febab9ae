// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/best_checkpoint.hpp"

#include "engine/weights/checkpoint_folder.hpp"

namespace fs = std::filesystem;

namespace ddhost {

BestCheckpoint::BestCheckpoint(const TrainSetup& setup, const std::vector<Evaluation>& evaluations) {
  const auto metric = setup.services.config.get<std::string>("checkpoint.best.metric");
  if (!metric.empty())
    metric_.emplace(setup, evaluations,
                    EvaluatedMetric::Options{ddh::str("checkpoint.best.metric=", metric), "checkpoint.best.metric",
                                             metric, setup.services.config.get<std::string>("checkpoint.best.mode")});
}

void BestCheckpoint::evaluated(int64_t step, int32_t program, std::span<const ReportedValue> values) {
  if (metric_) static_cast<void>(metric_->is_better(step, program, values));
}

std::string BestCheckpoint::restore(const BestState& saved, const fs::path& run_dir) {
  if (!metric_ || !saved.best.value) return "";
  std::error_code ec;
  if (!fs::is_directory(checkpoint_folder(run_dir, saved.best.step), ec))
    return ddh::str("the best checkpoint so far, of step ", saved.best.step, ", is not in '", run_dir.string(),
                    "': the best value begins anew");
  return metric_->restore(saved);
}

}  // namespace ddhost
