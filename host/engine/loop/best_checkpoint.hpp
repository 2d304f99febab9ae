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
  // As Patience: refuses a metric that no evaluation of the run reports.
  BestCheckpoint(const TrainSetup& setup, const std::vector<int32_t>& programs);

  void evaluated(int64_t step, int32_t program, std::span<const ReportedValue> values);
  [[nodiscard]] const BestState& state() const { return state_; }
  // Values of another metric, and those whose checkpoint the run's folder lacks, are forgotten; returns a sentence that
  // says so, or "".
  std::string restore(const BestState& saved, const std::filesystem::path& run_dir);

 private:
  BestState state_;
  std::optional<EvaluatedMetric> metric_;  // nothing: the option is not given
};

}  // namespace ddhost
