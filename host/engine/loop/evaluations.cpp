// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/evaluations.hpp"

#include <spdlog/spdlog.h>
#include <limits>

#include "base/text.hpp"
#include "checkpoint/checkpoint_folder.hpp"

namespace fs = std::filesystem;

namespace ddhost {

namespace {

// The loss of an evaluation for a schedule; require_one_loss has checked that there is exactly one.
double loss_of(const ddh_program_desc& program, const std::vector<ReportedValue>& values) {
  const int32_t place = loss_place(program);
  return place < 0 ? std::numeric_limits<double>::quiet_NaN() : values[static_cast<size_t>(place)].value;
}

std::vector<Evaluation> make_evaluations(const TrainSetup& setup) {
  std::vector<Evaluation> out;
  if (!evaluates(setup.services.config)) return out;
  for (const int32_t program : eval_programs(setup)) out.emplace_back(setup, program);
  return out;
}

}  // namespace

Evaluations::Evaluations(const TrainSetup& setup, const TrainOrder& order, PhaseRates& rates, Monitor& monitor)
    : setup_(setup),
      order_(order),
      rates_(rates),
      monitor_(monitor),
      every_steps_(setup.services.config.get<int64_t>("train.eval_every")),
      every_epochs_(setup.services.config.get<int64_t>("train.eval_every_epochs")),
      all_(make_evaluations(setup)),
      patience_(setup, all_),
      best_(setup, all_) {
  require_one_loss();
}

// The losses of several programs in turn can't be compared with each other.
void Evaluations::require_one_loss() const {
  const std::string reader = rates_.reader_of_losses();  // "schedule.type=plateau"
  if (reader.empty()) return;
  if (all_.empty() && setup_.train_programs.size() > 1)
    ddh::fail(DDH_INVALID_ARGUMENT, reader, " needs a single loss, but this run trains ", setup_.train_programs.size(),
              " programs in turn; train one (train.programs=[\"",
              setup_.model.programs[setup_.train_programs.front()]->name,
              "\"]), evaluate a loss (train.eval_every), or choose another schedule");
  if (all_.size() > 1)
    ddh::fail(DDH_INVALID_ARGUMENT, reader, " needs a single loss, but this run evaluates ", all_.size(),
              " programs; name one in train.programs, or choose another schedule");
  if (all_.empty()) return;
  const ddh_program_desc& program = *setup_.model.programs[all_.front().program()];
  if (loss_place(program) < 0)
    ddh::fail(DDH_INVALID_ARGUMENT, reader, " needs the loss, which program '", program.name, "' does not report; ",
              without_evaluation(setup_.services.config), ", or choose another schedule");
}

bool Evaluations::are_due(const TrainStep& step) const {
  if (every_steps_ > 0) return step.step % every_steps_ == 0;
  return every_epochs_ > 0 && step.program == setup_.train_programs.front() && order_.ends_epoch(step, every_epochs_);
}

bool Evaluations::run(const TrainPosition& at) {
  for (Evaluation& evaluation : all_)
    if (!evaluation.run(at.step)) return false;
  for (const Evaluation& evaluation : all_) {
    const std::vector<ReportedValue>& values = evaluation.values();
    const ddh_program_desc& program = *setup_.model.programs[evaluation.program()];
    monitor_.evaluated(at.step, values, setup_.train_programs.size() > 1 ? program.name : "");
    rates_.evaluated(at.phase, loss_of(program, values));
    patience_.evaluated(at.step, evaluation.program(), values);
    best_.evaluated(at.step, evaluation.program(), values);
  }
  return true;
}

bool Evaluations::end_run() const {
  const std::string verdict = patience_.verdict();
  if (!verdict.empty() && setup_.services.seat.rank == 0) setup_.services.log->info("{}", verdict);
  return !verdict.empty();
}

Patience::Patience(const TrainSetup& setup, const std::vector<Evaluation>& evaluations)
    : patience_(setup.services.config.get<int64_t>("train.patience")) {
  const RunConfig& config = setup.services.config;
  if (patience_ > 0)
    metric_.emplace(setup, evaluations,
                    EvaluatedMetric::Options{ddh::str("train.patience=", patience_), "train.patience_metric",
                                             config.get<std::string>("train.patience_metric"),
                                             config.get<std::string>("train.patience_mode")});
}

void Patience::evaluated(int64_t step, int32_t program, std::span<const ReportedValue> values) {
  if (!metric_) return;
  const std::optional<bool> is_better = metric_->is_better(step, program, values);
  if (is_better) without_better_ = *is_better ? 0 : without_better_ + 1;
}

std::string Patience::verdict() const {
  if (!metric_ || without_better_ < patience_) return "";
  const BestState& state = metric_->state();
  const std::string best =
      state.best.value ? ddh::str(number_text(*state.best.value), " at step ", state.best.step) : "none";
  return ddh::str("val_", state.metric, " has not improved in ", without_better_, " evaluations (best: ", best,
                  "), so the run ends here (train.patience)");
}

PatienceState Patience::state() const {
  return metric_ ? PatienceState{metric_->state(), without_better_} : PatienceState{};
}

std::string Patience::restore(const PatienceState& saved) {
  if (!metric_) return "";
  std::string forgotten = metric_->restore(saved.best);
  if (forgotten.empty()) without_better_ = saved.without_better;
  return forgotten;
}

BestCheckpoint::BestCheckpoint(const TrainSetup& setup, const std::vector<Evaluation>& evaluations) {
  const auto metric = setup.services.config.get<std::string>("checkpoint.best.metric");
  if (!metric.empty())
    metric_.emplace(setup, evaluations,
                    EvaluatedMetric::Options{ddh::str("checkpoint.best.metric=", metric), "checkpoint.best.metric",
                                             metric, setup.services.config.get<std::string>("checkpoint.best.mode")});
}

void BestCheckpoint::evaluated(int64_t step, int32_t program, std::span<const ReportedValue> values) {
  if (metric_) static_cast<void>(metric_->is_better(step, program, values));
}

std::string BestCheckpoint::restore(const BestState& saved, const fs::path& run_dir) {
  if (!metric_ || !saved.best.value) return "";
  std::error_code ec;
  if (!fs::is_directory(checkpoint_folder(run_dir, saved.best.step), ec))
    return ddh::str("the best checkpoint so far, of step ", saved.best.step, ", is not in '", run_dir.string(),
                    "': the best value begins anew");
  return metric_->restore(saved);
}

}  // namespace ddhost
