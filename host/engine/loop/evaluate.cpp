// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/evaluate.hpp"

#include "engine/loop/course.hpp"

namespace ddhost {

namespace {

bool takes_each_once(const TrainSetup& setup) { return epoch_end(setup.services.config) == EpochEnd::shorten; }

const ddh_program_desc& described(const TrainSetup& setup, int32_t program) { return *setup.model.programs[program]; }

// All micro-batches in a row, as one rank would take them. With data.drop_last=false no sample counts twice: there are
// no more micro-batches than the samples fill.
SampleCut eval_cut(const TrainSetup& setup, int32_t program) {
  const RunConfig& config = setup.services.config;
  SampleCut cut{micro_batch_of(config, described(setup, program)), 1,
                static_cast<uint64_t>(config.get<int64_t>("train.eval_batches"))};
  const uint64_t needed = (described(setup, program).n_samples + cut.micro_batch - 1) / cut.micro_batch;
  if (takes_each_once(setup)) cut.grad_accum_steps = std::clamp<uint64_t>(needed, 1, cut.grad_accum_steps);
  return cut;
}

SampleOrder eval_order(const TrainSetup& setup, int32_t program) {
  const ddh_program_desc& p = described(setup, program);
  if (p.n_metrics == 0)
    ddh::fail(DDH_FAILED_PRECONDITION, "program '", p.name, "' has no metrics, so an evaluation would tell nothing; ",
              "set train.eval_every=0");
  const SampleCut cut = eval_cut(setup, program);
  const bool each_once = takes_each_once(setup);
  if (p.n_samples == 0 || (!each_once && p.n_samples < cut.micro_batch))
    ddh::fail(DDH_FAILED_PRECONDITION, "the evaluation data of program '", p.name, "' has ", p.n_samples,
              " samples, fewer than one micro-batch of ", cut.micro_batch,
              "; raise data.val_fraction, give data.val_path, lower data.micro_batch, or set train.eval_every=0");
  return {p.n_samples, 0, "", each_once ? EpochEnd::shorten : EpochEnd::join};
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
  if (turn.counts) setup_.runner.metrics(program_, 0, metrics_.sums(pass), metrics_.counts(pass));
  setup_.runner.discard(0);
}

const std::vector<ReportedValue>* Evaluation::run(int64_t step) {
  metrics_.begin(described(setup_, program_).n_metrics, turns_.passes());
  for (uint64_t pass = 0; pass < turns_.passes(); ++pass) {
    if (stop_wanted(setup_)) return nullptr;
    run_pass(step, pass);
  }
  const std::span<const double> rows = metrics_.rows();
  gathered_.resize(rows.size() * turns_.world_size);
  setup_.services.comm->all_gather_bytes(rows.data(), gathered_.data(), rows.size_bytes(), "evaluate");
  metrics_.fold(gathered_.data(), rows.size(), turns_.world_size, folded_);
  report(setup_.model_callers.main, setup_.model_inst, setup_.model_table, setup_.model, program_, folded_, reported_);
  return &reported_;
}

std::vector<int32_t> eval_programs(const TrainSetup& setup) {
  std::vector<int32_t> out;
  for (const int32_t program : setup.train_programs) {
    const int32_t eval = eval_program_of(setup.model, program);
    if (eval < 0)
      ddh::fail(DDH_FAILED_PRECONDITION, "program '", described(setup, program).name, "' of model '", setup.model.name,
                "' names no program that evaluates it; give validation data (data.val_path, data.val_fraction), name "
                "one in the model, or set train.eval_every=0");
    if (std::find(out.begin(), out.end(), eval) == out.end()) out.push_back(eval);
  }
  return out;
}

}  // namespace ddhost
