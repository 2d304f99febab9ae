// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/best_checkpoint.hpp: which evaluation was the best one, so that its checkpoint is kept (checkpoint.best).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/loop/evaluated_metric.hpp"

namespace ddhost {

class BestCheckpoint {
 public:
  // Error: checkpoint.best is given, and its metric can't be used (EvaluatedMetric).
  BestCheckpoint(const TrainSetup& setup, const std::vector<Evaluation>& evaluations);

  void evaluated(int64_t step, int32_t program, std::span<const ReportedValue> values);
  [[nodiscard]] BestState state() const { return metric_ ? metric_->state() : BestState{}; }
  // Returns a sentence if the saved value is forgotten, else "". A value whose checkpoint the run's folder lacks is too.
  std::string restore(const BestState& saved, const std::filesystem::path& run_dir);

 private:
  std::optional<EvaluatedMetric> metric_;  // nothing: the option is not given
};

}  // namespace ddhost
