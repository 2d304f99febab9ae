// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/evaluations.hpp: the evaluations of a training run: when they run, with which programs, and who gets the
// values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/loop/evaluate.hpp"
#include "engine/record/monitor.hpp"
#include "engine/samples/train_order.hpp"
#include "engine/settings/phase_rates.hpp"

namespace ddhost {

// Which evaluation was the best one, so that its checkpoint is kept (checkpoint.best).
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

// Ends a run whose evaluations do not improve any more (train.patience).
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

class Evaluations {
 public:
  // The arguments outlive this object. Throws if the model or its data can't be evaluated, or if the schedule needs a
  // loss that no evaluation reports.
  Evaluations(const TrainSetup& setup, const TrainOrder& order, PhaseRates& rates, Monitor& monitor);

  [[nodiscard]] bool are_due(const TrainStep& step) const;
  // Evaluates the training programs of this run after the last step of `at`, with the values that a file of weights would
  // have. False: the run was asked to stop meanwhile. Then nothing is recorded; a resumed run evaluates again. [collective]
  [[nodiscard]] bool run(const TrainPosition& at);
  // Whether train.patience ends the run. If so, writes the reason to the log.
  [[nodiscard]] bool end_run() const;
  [[nodiscard]] Patience& patience() { return patience_; }
  [[nodiscard]] BestCheckpoint& best() { return best_; }

 private:
  void require_one_loss() const;

  const TrainSetup& setup_;
  const TrainOrder& order_;
  PhaseRates& rates_;
  Monitor& monitor_;
  const int64_t every_steps_, every_epochs_;  // 0: not used
  std::vector<Evaluation> all_;
  Patience patience_;
  BestCheckpoint best_;
};

}  // namespace ddhost
