// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/evaluations.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "base/json.hpp"
#include "base/text.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "engine/record/rank_log.hpp"
#include "engine/settings/course.hpp"

namespace fs = std::filesystem;

namespace ddhost {
namespace {

const ddh_program_desc& described(const TrainSetup& setup, int32_t program) { return *setup.model.programs[program]; }

// All micro-batches, in the order of one rank. No sample counts twice: the samples limit the number of micro-batches, and the
// last one may be smaller. train.eval_batches=0 stands for all samples.
SampleCut eval_cut(const TrainSetup& setup, int32_t program) {
  const RunConfig& config = setup.services.config;
  const uint64_t micro_batch = micro_batch_of(config, described(setup, program));
  const auto asked = static_cast<uint64_t>(config.get<int64_t>("train.eval_batches"));
  const uint64_t all = std::max<uint64_t>((described(setup, program).n_samples + micro_batch - 1) / micro_batch, 1);
  return {micro_batch, 1, asked == 0 ? all : std::min(asked, all)};
}

// "set train.eval_every=0": how a run that evaluates does so no more.
std::string without_evaluation(const RunConfig& config) {
  return config.get<int64_t>("train.eval_every") > 0 ? "set train.eval_every=0" : "set train.eval_every_epochs=0";
}

// A further cure for an error message, if evaluations are part of a training run.
std::string or_none(const TrainSetup& setup) {
  const RunConfig& config = setup.services.config;
  return evaluates(config) ? "; or " + without_evaluation(config) : "";
}

SampleOrder eval_order(const TrainSetup& setup, int32_t program) {
  const ddh_program_desc& p = described(setup, program);
  if (p.n_metrics == 0)
    ddh::fail(DDH_FAILED_PRECONDITION, "program '", p.name, "' has no metrics, so an evaluation would report nothing",
              or_none(setup));
  if (p.n_samples == 0)
    ddh::fail(DDH_FAILED_PRECONDITION, "program '", p.name, "' has no evaluation data; raise data.val_fraction or ",
              "give data.val_path", or_none(setup));
  return evaluation_order(p.n_samples);
}

// The loss of an evaluation for a schedule; require_one_loss has checked that there is exactly one.
double loss_of(const ddh_program_desc& program, const std::vector<ReportedValue>& values) {
  const int32_t place = loss_place(program);
  return place < 0 ? std::numeric_limits<double>::quiet_NaN() : values[static_cast<size_t>(place)].value;
}

// The distinct programs that evaluate the training programs of this run, in the order of their turns. Throws if a
// training program names none.
std::vector<int32_t> eval_programs(const TrainSetup& setup) {
  for (const int32_t program : setup.train_programs)
    if (eval_program_of(setup.model, program) < 0)
      ddh::fail(
          DDH_FAILED_PRECONDITION, "program '", described(setup, program).name, "' of model '", setup.model.name,
          "' names no program that evaluates it: the model has none, or no data for it, of which a warning tells ",
          "the reason; give validation data (data.val_path, data.val_fraction, or the model's own options), or ",
          without_evaluation(setup.services.config));
  return eval_programs_of(setup.model, setup.train_programs);
}

std::vector<Evaluation> make_evaluations(const TrainSetup& setup) {
  std::vector<Evaluation> out;
  if (!evaluates(setup.services.config)) return out;
  for (const int32_t program : eval_programs(setup)) out.emplace_back(setup, program);
  return out;
}

}  // namespace

Evaluation::Evaluation(const TrainSetup& setup, int32_t program)
    : setup_(setup),
      program_(program),
      turns_{eval_cut(setup, program).grad_accum_steps, static_cast<uint64_t>(setup.services.seat.world_size())},
      cut_(eval_cut(setup, program)),
      order_(eval_order(setup, program)) {
  uint64_t begin = 0;
  span_ = order_.take(begin, cut_);
}

void Evaluation::run_pass(int64_t step, uint64_t pass) {
  const EvalTurns::Turn turn = turns_.turn(pass, static_cast<uint64_t>(setup_.services.seat.rank));
  const auto place = static_cast<int64_t>(turn.micro_batch);
  const Batch batch =
      make_batch(setup_.model_inst, setup_.model_table, setup_.model_callers.main, setup_.model_callers.main,
                 {program_, step, 0, place}, order_.samples(span_, cut_, turn.micro_batch, 0));
  setup_.runner.run(setup_.programs.of(program_), {step, 0, place}, batch, 1.0);
  if (turn.counts) {
    setup_.services.device->synchronize(nullptr);  // the results
    setup_.services.comm->require_healthy();
    setup_.runner.metrics(program_, 0, metrics_.sums(pass), metrics_.counts(pass));
  }
  setup_.runner.discard(0);
}

bool Evaluation::run(int64_t step) {
  metrics_.begin(described(setup_, program_).n_metrics, turns_.passes());
  for (uint64_t pass = 0; pass < turns_.passes(); ++pass) {
    if (stop_wanted(setup_)) return false;
    run_pass(step, pass);
  }
  const std::span<const double> rows = metrics_.rows();
  gathered_.resize(rows.size() * turns_.world_size);
  setup_.services.comm->all_gather_bytes(rows.data(), gathered_.data(), rows.size_bytes(), "evaluate");
  metrics_.fold(gathered_.data(), rows.size(), turns_.world_size, folded_);
  report(setup_.model_callers.main, setup_.model_inst, setup_.model_table, setup_.model, program_, folded_, reported_);
  return true;
}

std::vector<int32_t> programs_to_evaluate(const ddh_model_desc& model, const std::vector<int32_t>& train_programs) {
  std::vector<int32_t> programs = eval_programs_of(model, train_programs);
  for (uint32_t g = 0; programs.empty() && g < model.n_programs; ++g)
    if (model.programs[g]->kind == DDH_PROGRAM_EVAL) programs.push_back(static_cast<int32_t>(g));
  if (programs.empty())
    ddh::fail(DDH_FAILED_PRECONDITION, "model '", model.name,
              "' has no program that evaluates; give validation data (data.val_path, data.val_fraction)");
  return programs;
}

void print_evaluations(const TrainSetup& setup, const std::vector<int32_t>& programs, bool as_json) {
  Json json = {{"programs", Json::array()}};
  for (const int32_t program : programs) {
    Evaluation evaluation(setup, program);
    if (!evaluation.run(0) || setup.services.seat.rank != 0) continue;
    if (as_json) {
      Json values = Json::object();  // a number that is not finite is null
      for (const ReportedValue& value : evaluation.values()) values[std::string(value.name)] = value.value;
      json["programs"].push_back({{"name", described(setup, program).name},
                                  {"samples", evaluation.n_samples()},
                                  {"values", std::move(values)}});
      continue;
    }
    std::string text = ddh::str(shown_text(described(setup, program).name), ": ", evaluation.n_samples(), " samples\n");
    for (const ReportedValue& value : evaluation.values()) {
      std::array<char, 320> line{};
      std::snprintf(line.data(), line.size(), "  %-16s %.17g\n", shown_text(value.name).c_str(), value.value);
      text += line.data();
    }
    write_stdout(text);
  }
  if (as_json && setup.services.seat.rank == 0) write_stdout(json_document(json));
}

bool evaluates(const RunConfig& config) {
  return config.get<int64_t>("train.eval_every") > 0 || config.get<int64_t>("train.eval_every_epochs") > 0;
}

EvaluatedMetric::EvaluatedMetric(const TrainSetup& setup, const std::vector<Evaluation>& evaluations,
                                 const Options& options)
    : state_{options.metric, options.mode, 0, {}}, option_(options.metric_name) {
  if (evaluations.empty())
    ddh::fail(DDH_INVALID_ARGUMENT, options.wish, " goes by evaluations, and the run makes none; set train.eval_every ",
              "or train.eval_every_epochs");
  std::string all, same;  // names, and those of the same metric in several programs
  size_t found = 0;
  for (const Evaluation& evaluation : evaluations) {
    const ddh_program_desc& program = *setup.model.programs[evaluation.program()];
    for (const std::string_view name : reported_names(program)) {
      const std::string full = ddh::str(program.name, ".", name);
      all += (all.empty() ? "" : ", ") + (evaluations.size() > 1 ? full : std::string(name));
      if (name != options.metric && full != options.metric) continue;
      same += (same.empty() ? "" : ", ") + full;
      ++found;
      name_ = name;
      program_ = evaluation.program();
      state_.samples = evaluation.n_samples();
    }
  }
  if (found == 0)
    ddh::fail(DDH_INVALID_ARGUMENT, option_, "='", options.metric,
              "' is reported by no program that evaluates this run; they report ", all);
  if (found > 1)
    ddh::fail(DDH_INVALID_ARGUMENT, option_, "='", options.metric, "' is reported by ", found,
              " programs that evaluate this run; give one of ", same);
}

std::optional<bool> EvaluatedMetric::is_better(int64_t step, int32_t program, std::span<const ReportedValue> values) {
  if (program != program_) return std::nullopt;
  const auto at = std::find_if(values.begin(), values.end(), [&](const ReportedValue& v) { return v.name == name_; });
  if (!std::isfinite(at->value)) return false;
  const std::optional<double>& best = state_.best.value;
  if (best && (state_.mode == "max" ? at->value <= *best : at->value >= *best)) return false;
  state_.best = {at->value, step};
  return true;
}

std::string EvaluatedMetric::restore(const BestState& saved) {
  if (!saved.metric.empty() && (saved.metric != state_.metric || saved.mode != state_.mode))
    return ddh::str(option_, " was ", saved.metric, " (", saved.mode, ") before and is ", state_.metric, " (",
                    state_.mode, ") now: the best value begins anew");
  if (saved.samples != 0 && saved.samples != state_.samples)
    return ddh::str(option_, "=", state_.metric, " was evaluated on ", saved.samples, " samples before and is on ",
                    state_.samples, " now: the best value begins anew");
  state_.best = saved.best;
  return "";
}

Evaluations::Evaluations(const TrainSetup& setup, const TrainOrder& order, PhaseRates& rates, RunOutput& output)
    : setup_(setup),
      order_(order),
      rates_(rates),
      output_(output),
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
    output_.evaluated(at.step, values, setup_.train_programs.size() > 1 ? program.name : "");
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
