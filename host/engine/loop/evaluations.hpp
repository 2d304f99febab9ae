// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/evaluations.hpp: the evaluations of a training run: when, of which programs, and who is told.
#pragma once

#include <vector>

#include "engine/data/train_order.hpp"
#include "engine/loop/best_checkpoint.hpp"
#include "engine/loop/evaluate.hpp"
#include "engine/loop/patience.hpp"
#include "engine/loop/phase_rates.hpp"
#include "engine/monitor/monitor.hpp"

namespace ddhost {

class Evaluations {
 public:
  // All outlive this object. Throws if the model or its data can't be evaluated, or the schedule goes by a loss that there
  // is not.
  Evaluations(const TrainSetup& setup, const TrainOrder& order, PhaseRates& rates, Monitor& monitor);

  [[nodiscard]] bool are_due(const TrainStep& step) const;
  // Every program that evaluates one of this run's, after the last step of `at`, by the values that a file of weights would
  // hold. False: the run was asked to stop in between, and nothing is recorded; a resumed run evaluates again. [collective]
  [[nodiscard]] bool run(const TrainPosition& at);
  // Whether train.patience is at its end; says so in the log.
  [[nodiscard]] bool end_run() const;
  [[nodiscard]] Patience& patience() { return patience_; }
  [[nodiscard]] BestCheckpoint& best() { return best_; }

 private:
  void require_one_loss() const;

  const TrainSetup& setup_;
  const TrainOrder& order_;
  PhaseRates& rates_;
  Monitor& monitor_;
  const int64_t every_steps_, every_epochs_;  // 0: not by these
  std::vector<Evaluation> all_;
  Patience patience_;
  BestCheckpoint best_;
};

}  // namespace ddhost
