// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/train_loop.hpp"

#include <cmath>
#include <limits>

#include "engine/loop/buffers.hpp"
#include "engine/loop/course.hpp"
#include "engine/loop/evaluate.hpp"
#include "engine/loop/loss_scale.hpp"
#include "engine/loop/update_programs.hpp"

namespace ddhost {
namespace {

// Backward differentiates seed_scale * SUM of losses. A power of two near 1 / (samples of a step) keeps gradients near
// their final size and costs no rounding; the rest of the mean is in inv_scale.
double seed_scale_for(uint64_t n_samples, double loss_scale) {
  return loss_scale * std::exp2(-std::round(std::log2(static_cast<double>(n_samples))));
}

// Losses of several programs in turn say nothing about getting better.
void require_one_loss(const TrainSetup& setup, const Schedules& schedules, const std::vector<Evaluation>& evaluations) {
  if (!schedules.reads_losses()) return;
  const std::string type = setup.services.config.get<std::string>("schedule.type");
  if (evaluations.empty() && setup.train_programs.size() > 1)
    ddh::fail(DDH_INVALID_ARGUMENT, "schedule.type=", type, " goes by one loss, and this run trains ",
              setup.train_programs.size(), " programs in turn; set train.eval_every, or choose another schedule");
  if (evaluations.size() > 1)
    ddh::fail(DDH_INVALID_ARGUMENT, "schedule.type=", type, " goes by one loss, and this run evaluates ",
              evaluations.size(), " programs; name one in train.programs, or choose another schedule");
  if (evaluations.empty()) return;
  const ddh_program_desc& program = *setup.model.programs[evaluations.front().program()];
  if (loss_place(program) < 0)
    ddh::fail(DDH_INVALID_ARGUMENT, "schedule.type=", type, " goes by the loss, which program '", program.name,
              "' does not report; set train.eval_every=0, or choose another schedule");
}

// The gradient is divided by the one and scaled for the other.
void require_same_count(double counted, double announced) {
  if (counted == announced) return;
  ddh::fail(DDH_INTERNAL, "a batch of the model announced ", announced, " targets of the loss, its metric 0 counted ",
            counted, "; fix the model");
}

// What a schedule reads of an evaluation; require_one_loss has seen to it that there is one where it does.
double loss_of(const ddh_program_desc& program, const std::vector<ReportedValue>& values) {
  const int32_t place = loss_place(program);
  return place < 0 ? std::numeric_limits<double>::quiet_NaN() : values[static_cast<size_t>(place)].value;
}

// Every program that evaluates one of this run's, by the values that a file of weights would hold.
void evaluate_all(const TrainSetup& setup, std::vector<Evaluation>& evaluations, int64_t step, Monitor& monitor,
                  Schedules& schedules) {
  for (Evaluation& evaluation : evaluations) {
    const std::vector<ReportedValue>* const values = evaluation.run(step);
    if (values == nullptr) return;
    const ddh_program_desc& program = *setup.model.programs[evaluation.program()];
    monitor.evaluated(step, *values, setup.train_programs.size() > 1 ? program.name : "");
    schedules.evaluated(loss_of(program, *values));
  }
}

void require_success_possible(bool possible, const StepOutcome& outcome, const ddh_step_block& block) {
  if (possible) return;
  ddh::fail(DDH_FAILED_PRECONDITION, "step ", block.step, ": ", outcome.nonfinite,
            ", and the loss scale is at its smallest (", block.loss_scale,
            "): lower optimizer.lr, set precision.compute=bf16, or go on with ", "precision.loss_scale_at_min=keep");
}

// Runs micro-batch `m` of a step and notes its metrics and its contributions to buffers.
void run_micro_batch(TrainSetup& setup, const ProgramOps& ops, const MicroBatch& micro, const Batch& batch,
                     double seed_scale, MicroMetrics& metrics, Buffers& buffers) {
  const uint64_t m = micro.index;
  setup.runner.run(ops, micro, batch, seed_scale);
  setup.runner.metrics(ops.program(), m, metrics.sums(m), metrics.counts(m));
  require_same_count(metrics.counts(m)[0], batch.info().loss_count);
  metrics.items(m) = static_cast<double>(batch.info().items);
  buffers.collect(ops.program(), m);
  setup.runner.discard(m);
}

std::vector<Evaluation> make_evaluations(const TrainSetup& setup) {
  std::vector<Evaluation> out;
  if (setup.services.config.get<int64_t>("train.eval_every") == 0) return out;
  for (const int32_t program : eval_programs(setup)) out.emplace_back(setup, program);
  return out;
}

}  // namespace

TrainEnd train_loop(TrainSetup setup, Monitor& monitor) {
  RankServices& services = setup.services;
  const RunConfig& config = services.config;
  const auto accum = static_cast<uint64_t>(config.get<int64_t>("train.grad_accum_steps"));
  const int64_t eval_every = config.get<int64_t>("train.eval_every");

  Schedules& schedules = setup.schedules;
  const TrainOrder& order = setup.order;
  TrainPosition position = order.begin();
  LossScale loss_scale(LossScaleSettings::from(config));
  std::vector<Evaluation> evaluations = make_evaluations(setup);
  require_one_loss(setup, schedules, evaluations);
  const UpdatePrograms updates(setup);
  Loader loader(setup.model_inst, setup.model_table, setup.model_callers, order, position,
                static_cast<uint64_t>(services.seat.rank));
  Buffers buffers(setup.model_callers.main, setup.model_inst, setup.model_table, setup.model, services, accum,
                  config.get<bool>("train.sync_buffers"));
  MicroMetrics metrics;
  std::vector<ReportedValue> values;

  services.clock.restart();
  while (!order.is_at_end(position)) {
    const TrainStep now = order.advance(position);
    const int64_t step = now.step;
    const int32_t program = now.program;
    const ddh_program_desc& described = *setup.model.programs[program];
    monitor.step_begin(step);
    const double seed_scale = seed_scale_for(now.span.count, loss_scale.value());
    services.step->begin(step, program, schedules.lr(described.optimizer, step), seed_scale, loss_scale.value());
    setup.runner.step_begin(program, step);
    buffers.sync();

    metrics.begin(described.n_metrics, accum);
    for (uint64_t m = 0; m < accum; ++m) {
      const Batch batch = loader.next(services.clock);
      run_micro_batch(setup, setup.programs.of(program), {step, m, services.comm->global_micro_batch(m)}, batch,
                      seed_scale, metrics, buffers);
    }
    services.step->set_metrics(metrics, services.seat.record.stop_requested());
    setup.runner.step();
    buffers.fold();

    const ddh_step_block& block = services.step->block();
    const StepOutcome& outcome = services.step->outcome();
    report(setup.model_callers.main, setup.model_inst, setup.model_table, setup.model, program, outcome.world, values);
    monitor.step_end(block, outcome,
                     {values, setup.train_programs.size() > 1 ? described.name : "", now.span.count,
                      program == setup.train_programs.front(), epoch_place(order, now)});
    require_success_possible(loss_scale.step_done(!outcome.nonfinite.empty()), outcome, block);
    schedules.step_done(step, block.skip != 0, values.front().value);
    if (outcome.stop) return {step, true};
    updates.step_done(step);
    if (eval_every > 0 && step % eval_every == 0) {
      buffers.sync();  // the values that a file would hold
      evaluate_all(setup, evaluations, step, monitor, schedules);
    }
  }
  return {position.step, false};
}

}  // namespace ddhost
