// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/evaluate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/text.hpp"
#include "engine/record/rank_log.hpp"
#include "engine/settings/course.hpp"

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
  // Always the same pass, so the short shape does for sets of any size.
  return {p.n_samples, 0, EpochEnd::shorten, short_shape(p.n_samples)};
}

}  // namespace

Evaluation::Evaluation(const TrainSetup& setup, int32_t program)
    : setup_(setup),
      program_(program),
      turns_{eval_cut(setup, program).grad_accum_steps, static_cast<uint64_t>(setup.services.seat.world_size)},
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

std::vector<int32_t> programs_to_evaluate(const ddh_model_desc& model, const std::vector<int32_t>& train_programs) {
  std::vector<int32_t> programs = eval_programs_of(model, train_programs);
  for (uint32_t g = 0; programs.empty() && g < model.n_programs; ++g)
    if (model.programs[g]->kind == DDH_PROGRAM_EVAL) programs.push_back(static_cast<int32_t>(g));
  if (programs.empty())
    ddh::fail(DDH_FAILED_PRECONDITION, "model '", model.name,
              "' has no program that evaluates; give validation data (data.val_path, data.val_fraction)");
  return programs;
}

void print_evaluations(const TrainSetup& setup, const std::vector<int32_t>& programs) {
  for (const int32_t program : programs) {
    Evaluation evaluation(setup, program);
    if (!evaluation.run(0) || setup.services.seat.rank != 0) continue;
    std::string text = ddh::str(shown_text(described(setup, program).name), ": ", evaluation.n_samples(), " samples\n");
    for (const ReportedValue& value : evaluation.values()) {
      std::array<char, 320> line{};
      std::snprintf(line.data(), line.size(), "  %-16s %.17g\n", shown_text(value.name).c_str(), value.value);
      text += line.data();
    }
    write_stdout(text);
  }
}

std::string without_evaluation(const RunConfig& config) {
  return config.get<int64_t>("train.eval_every") > 0 ? "set train.eval_every=0" : "set train.eval_every_epochs=0";
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

}  // namespace ddhost
