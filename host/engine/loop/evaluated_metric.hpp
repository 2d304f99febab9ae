// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/evaluated_metric.hpp: a metric of evaluations that a run goes by (train.patience, checkpoint.best), and the
// best of its values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/loop/evaluate.hpp"
#include "engine/weights/train_progress.hpp"

namespace ddhost {

class EvaluatedMetric {
 public:
  // The options that name it.
  struct Options {
    std::string wish;         // "train.patience=3": what needs evaluations, for errors
    std::string metric_name;  // "train.patience_metric", for errors
    std::string metric;       // "loss", or with the program that reports it: "eval_text.loss"
    std::string mode;         // "min" or "max"
  };
  // Error: the run does not evaluate, no evaluation reports the metric, or several do and none of them is named.
  EvaluatedMetric(const TrainSetup& setup, const std::vector<Evaluation>& evaluations, const Options& options);

  // After each evaluation of a program. Nothing where it is another program; else whether the value is better than the best
  // one so far, which it then becomes. A value that is not finite is never better.
  [[nodiscard]] std::optional<bool> is_better(int64_t step, int32_t program, std::span<const ReportedValue> values);
  [[nodiscard]] const BestState& state() const { return state_; }
  // Takes the best value of a checkpoint. One of another metric or of other samples is forgotten; returns a sentence that
  // says so, else "".
  std::string restore(const BestState& saved);

 private:
  BestState state_;
  const std::string option_;  // "train.patience_metric"
  std::string name_;          // of the value that the program reports
  int32_t program_ = -1;
};

}  // namespace ddhost
