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
  // Error: train.patience is given, and its metric can't be used (EvaluatedMetric).
  Patience(const TrainSetup& setup, const std::vector<Evaluation>& evaluations);

  // After each evaluation of a program.
  void evaluated(int64_t step, int32_t program, std::span<const ReportedValue> values);
  // The reason to end the run here; "" if it continues.
  [[nodiscard]] std::string verdict() const;
  [[nodiscard]] PatienceState state() const;
  // Returns a sentence if the saved values are forgotten, else "".
  std::string restore(const PatienceState& saved);

 private:
  const int64_t patience_;  // 0: without end
  std::optional<EvaluatedMetric> metric_;
  int64_t without_better_ = 0;  // evaluations in a row
};

}  // namespace ddhost
