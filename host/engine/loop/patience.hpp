// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/patience.hpp: ends a run whose evaluations get no better (train.patience).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/loop/train_setup.hpp"

namespace ddhost {

// What it remembers from one evaluation to the next; a checkpoint may keep it.
struct PatienceState {
  std::optional<double> best;
  int64_t best_step = 0;
  int64_t without_better = 0;  // evaluations in a row
};

class Patience {
 public:
  // `programs`: those that the run evaluates. Error: train.patience is given, and none of them reports its metric, or the
  // run does not evaluate.
  Patience(const TrainSetup& setup, const std::vector<int32_t>& programs);

  // After each evaluation of a program.
  void evaluated(int64_t step, int32_t program, std::span<const ReportedValue> values);
  // Why the run ends here; "" while it goes on.
  [[nodiscard]] std::string verdict() const;
  [[nodiscard]] PatienceState& state() { return state_; }

 private:
  const int64_t patience_;  // 0: without end
  const std::string metric_;
  const bool higher_is_better_;
  int32_t program_ = -1;  // the first that reports the metric
  PatienceState state_;
};

}  // namespace ddhost
