// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/evaluations.hpp: runs an eval program over held-out samples, for `ddhost eval` and during a training:
// when evaluations run, with which programs, and who gets the values. Ranks take the numbered micro-batches in turn. A
// micro-batch has the same samples at every world size, and metrics are folded in the order of the numbers. So an
// evaluation has the same bits for every number of ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/train_progress.hpp"
#include "engine/loop/train_setup.hpp"
#include "engine/record/reports.hpp"
#include "engine/record/run_output.hpp"
#include "engine/samples/sample_order.hpp"
#include "engine/samples/train_order.hpp"
#include "engine/settings/phase_rates.hpp"
#include "engine/settings/run_programs.hpp"

namespace ddhost {

// The micro-batches of 0 .. count-1 that a rank runs. All ranks make the same number of passes, because acquire is
// collective. A rank with none left runs the last one again and does not count it.
struct EvalTurns {
  uint64_t count, world_size;
  struct Turn {
    uint64_t micro_batch;
    bool counts;
  };
  [[nodiscard]] uint64_t passes() const { return (count + world_size - 1) / world_size; }
  [[nodiscard]] Turn turn(uint64_t pass, uint64_t rank) const {
    const uint64_t place = pass * world_size + rank;
    return {std::min(place, count - 1), place < count};
  }
};

// One eval program over train.eval_batches micro-batches, always the same samples.
class Evaluation {
 public:
  // Created before the first step. Throws if the model or its data can't be evaluated.
  Evaluation(const TrainSetup& setup, int32_t program);
  // The values of the last run() that was not stopped, equal on every rank.
  [[nodiscard]] const std::vector<ReportedValue>& values() const { return reported_.values; }
  [[nodiscard]] int32_t program() const { return program_; }
  [[nodiscard]] uint64_t n_samples() const { return span_.count; }  // of all ranks
  // False: the run was asked to stop meanwhile. [collective]
  [[nodiscard]] bool run(int64_t step);

 private:
  void run_pass(int64_t step, uint64_t pass);

  TrainSetup setup_;
  const int32_t program_;
  const EvalTurns turns_;
  const SampleCut cut_;
  const SampleOrder order_;
  SampleSpan span_;               // of all micro-batches
  MicroMetrics metrics_;          // a row for each pass
  std::vector<double> gathered_;  // the rows of all ranks
  FoldedMetrics folded_;
  Reported reported_;
};

// The programs that `ddhost eval` runs: those that evaluate the given training programs; if they name none, all of the
// model.
std::vector<int32_t> programs_to_evaluate(const ddh_model_desc& model, const std::vector<int32_t>& train_programs);
// Evaluates them; rank 0 prints what they report. [collective]
void print_evaluations(const TrainSetup& setup, const std::vector<int32_t>& programs, bool as_json);

// Whether the run evaluates: train.eval_every or train.eval_every_epochs.
bool evaluates(const RunConfig& config);

// A metric of evaluations that a run goes by (train.patience, checkpoint.best), and the best of its values.
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
  Evaluations(const TrainSetup& setup, const TrainOrder& order, PhaseRates& rates, RunOutput& output);

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
  RunOutput& output_;
  const int64_t every_steps_, every_epochs_;  // 0: not used
  std::vector<Evaluation> all_;
  Patience patience_;
  BestCheckpoint best_;
};

}  // namespace ddhost
