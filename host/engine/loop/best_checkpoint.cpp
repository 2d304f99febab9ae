// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/best_checkpoint.hpp"

#include "engine/weights/checkpoint_folder.hpp"

namespace fs = std::filesystem;

namespace ddhost {

BestCheckpoint::BestCheckpoint(const TrainSetup& setup, const std::vector<int32_t>& programs)
    : state_{setup.services.config.get<std::string>("checkpoint.best.metric"),
             setup.services.config.get<std::string>("checkpoint.best.mode"),
             {}} {
  if (!state_.metric.empty())
    metric_.emplace(
        setup, programs,
        EvaluatedMetric::Options{ddh::str("checkpoint.best.metric=", state_.metric), "checkpoint.best.metric"},
        state_.metric, state_.mode == "max");
}

void BestCheckpoint::evaluated(int64_t step, int32_t program, std::span<const ReportedValue> values) {
  if (metric_) static_cast<void>(metric_->is_better(step, program, values, state_.best));
}

std::string BestCheckpoint::restore(const BestState& saved, const fs::path& run_dir) {
  if (!metric_ || !saved.best.value) return "";
  if (saved.metric != state_.metric || saved.mode != state_.mode)
    return ddh::str("checkpoint.best went by ", saved.metric, " (", saved.mode, ") before and goes by ", state_.metric,
                    " (", state_.mode, ") now: the best value begins anew");
  std::error_code ec;
  if (!fs::is_directory(checkpoint_folder(run_dir, saved.best.step), ec))
    return ddh::str("the best checkpoint so far, of step ", saved.best.step, ", is not in '", run_dir.string(),
                    "': the best value begins anew");
  state_.best = saved.best;
  return "";
}

}  // namespace ddhost
