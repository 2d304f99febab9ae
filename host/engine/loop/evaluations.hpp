// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/evaluations.hpp: the evaluations of a training run: when they run, with which programs, and who gets the
// values.
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
