// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/train_loop.hpp"

#include <cmath>

#include "engine/loop/buffers.hpp"
#include "engine/loop/course.hpp"
#include "engine/loop/evaluations.hpp"
#include "engine/loop/loss_scale.hpp"
#include "engine/loop/phase_changes.hpp"

namespace ddhost {
namespace {

// Backward differentiates seed_scale * SUM of losses. A power of two near 1 / (samples of a step) keeps gradients near
// their final size and costs no rounding; the rest of the mean is in inv_scale.
double seed_scale_for(uint64_t n_samples, double loss_scale) {
  return loss_scale * std::exp2(-std::round(std::log2(static_cast<double>(n_samples))));
}

// The gradient is divided by the one and scaled for the other.
void require_same_count(double counted, double announced) {
  if (counted == announced) return;
  ddh::fail(DDH_INTERNAL, "a batch of the model announced ", announced, " targets of the loss, its metric 0 counted ",
            counted, "; fix the model");
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

}  // namespace

TrainEnd train_loop(TrainSetup setup, const TrainOrder& order, PhaseRates& rates, Monitor& monitor) {
  RankServices& services = setup.services;
  const RunConfig& config = services.config;
  const auto accum = static_cast<uint64_t>(config.get<int64_t>("train.grad_accum_steps"));

  TrainPosition position = order.begin();
  LossScale loss_scale(LossScaleSettings::from(config));
  Evaluations evaluations(setup, order, rates, monitor);
  const UpdatePrograms updates(setup);
  const PhaseChanges changes(setup, order, updates, monitor);
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
    changes.before(now);
    const double seed_scale = seed_scale_for(now.span.count, loss_scale.value());
    services.step->begin(step, program, rates.lr(described.optimizer, now), seed_scale, loss_scale.value());
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
    rates.step_done(now, block.skip != 0, values.front().value);
    if (outcome.stop) return {step, true};
    updates.step_done(step);
    changes.after(now);
    if (evaluations.are_due(now)) {
      buffers.sync();  // the values that a file would hold
      evaluations.run(now);
      if (evaluations.end_run()) return {step, false};
    }
  }
  return {position.step, false};
}

}  // namespace ddhost
