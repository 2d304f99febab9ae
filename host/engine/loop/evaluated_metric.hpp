// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/evaluated_metric.hpp: a metric of evaluations that a run goes by (train.patience, checkpoint.best), and which
// of its values is better.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/loop/train_setup.hpp"
#include "engine/weights/train_progress.hpp"

namespace ddhost {

class EvaluatedMetric {
 public:
  // The options that name it, for errors.
  struct Options {
    std::string wish;         // "train.patience=3": what needs evaluations
    std::string metric_name;  // "train.patience_metric"
  };
  // `programs`: those that the run evaluates; the first that reports the metric is meant. Error: there are none, or none of
  // them reports it.
  EvaluatedMetric(const TrainSetup& setup, const std::vector<int32_t>& programs, const Options& options,
                  std::string metric, bool higher_is_better);

  // After each evaluation of a program. Nothing where it is another program; else whether the value is better than the best
  // one so far, which it then becomes. A value that is not finite is never better.
  [[nodiscard]] std::optional<bool> is_better(int64_t step, int32_t program, std::span<const ReportedValue> values,
                                              BestValue& best) const;

 private:
  const std::string metric_;
  const bool higher_is_better_;
  int32_t program_ = -1;
};

}  // namespace ddhost
