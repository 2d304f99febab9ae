// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/patience.hpp: ends a run whose evaluations do not improve any more (train.patience).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/loop/evaluated_metric.hpp"

namespace ddhost {

class Patience {
 public:
  // `programs`: those that the run evaluates. Error: train.patience is given, and none of them reports its metric, or the
  // run does not evaluate.
  Patience(const TrainSetup& setup, const std::vector<int32_t>& programs);

  // After each evaluation of a program.
  void evaluated(int64_t step, int32_t program, std::span<const ReportedValue> values);
  // The reason to end the run here; "" if it continues.
  [[nodiscard]] std::string verdict() const;
  [[nodiscard]] const PatienceState& state() const { return state_; }
  void restore(const PatienceState& saved) { state_ = saved; }

 private:
  const int64_t patience_;  // 0: without end
  const std::string metric_name_;
  std::optional<EvaluatedMetric> metric_;
  PatienceState state_;
};

}  // namespace ddhost
