// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/train_loop.hpp"

#include <cmath>
#include <limits>
#include <map>

#include "engine/loop/buffers.hpp"
#include "engine/loop/evaluate.hpp"
#include "engine/loop/loss_scale.hpp"
#include "engine/loop/update_programs.hpp"

namespace ddhost {
namespace {

// The samples of the steps. Refuses a configuration that the model does not support before anything is computed.
TrainOrder make_order(const TrainSetup& setup) {
  const RunConfig& config = setup.services.config;
  if (setup.train_programs.size() > 1 && !config.get<std::string>("data.order").empty())
    ddh::fail(DDH_INVALID_ARGUMENT, "data.order='", config.get<std::string>("data.order"),
              "' orders the samples of one ", "program, and this run trains ", setup.train_programs.size(),
              "; leave it out, or name one in train.programs");
  const SampleCut cut{static_cast<uint64_t>(config.get<int64_t>("data.micro_batch")),
                      static_cast<uint64_t>(setup.services.seat.world_size),
                      static_cast<uint64_t>(config.get<int64_t>("train.grad_accum_steps"))};
  std::map<int32_t, SampleOrder> orders;
  for (const int32_t program : setup.train_programs) {
    orders.try_emplace(program, setup.model.programs[program]->n_samples,
                       static_cast<uint64_t>(config.get<int64_t>("run.seed")), cut,
                       config.get<std::string>("data.order"), epoch_end(config));
  }
  TrainOrder order(setup.train_programs, std::move(orders));
  const int32_t empty = order.program_with_empty(config.get<int64_t>("train.steps"));
  if (empty >= 0 && !setup.takes_empty_batches)
    ddh::fail(DDH_FAILED_PRECONDITION, "the last step of an epoch of program '", setup.model.programs[empty]->name,
              "' leaves a micro-batch without samples, which model '", setup.model.name,
              "' does not take; use data.drop_last=true, fewer ranks or a smaller data.micro_batch");
  return order;
}

// Backward differentiates seed_scale * SUM of losses. A power of two near 1 / (samples of a step) keeps gradients near
// their final size and costs no rounding; the rest of the mean is in inv_scale.
double seed_scale_for(uint64_t n_samples, double loss_scale) {
  return loss_scale * std::exp2(-std::round(std::log2(static_cast<double>(n_samples))));
}

// The losses of several programs in turn can't be compared with each other.
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

// The gradient is divided by the count of metric 0, which must equal the count that the batch announced.
void require_same_count(double counted, double announced) {
  if (counted == announced) return;
  ddh::fail(DDH_INTERNAL, "a batch of the model announced ", announced, " targets of the loss, its metric 0 counted ",
            counted, "; fix the model");
}

// The loss of an evaluation for a schedule; require_one_loss has checked that there is exactly one.
double loss_of(const ddh_program_desc& program, const std::vector<ReportedValue>& values) {
  const int32_t place = loss_place(program);
  return place < 0 ? std::numeric_limits<double>::quiet_NaN() : values[static_cast<size_t>(place)].value;
}

// Evaluates the programs of this run, with the values that a file of weights would have.
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

// Runs micro-batch `m` of a step and records its metrics and contributions to buffers.
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
  const int64_t last_step = config.get<int64_t>("train.steps"), eval_every = config.get<int64_t>("train.eval_every");

  Schedules& schedules = setup.schedules;
  const TrainOrder order = make_order(setup);
  LossScale loss_scale(LossScaleSettings::from(config));
  std::vector<Evaluation> evaluations = make_evaluations(setup);
  require_one_loss(setup, schedules, evaluations);
  const UpdatePrograms updates(setup);
  Loader loader(setup.model_inst, setup.model_table, setup.model_callers, order,
                {1, last_step, accum, static_cast<uint64_t>(services.seat.rank),
                 static_cast<uint64_t>(services.seat.world_size)});
  Buffers buffers(setup.model_callers.main, setup.model_inst, setup.model_table, setup.model, services, accum,
                  config.get<bool>("train.sync_buffers"));
  MicroMetrics metrics;
  std::vector<ReportedValue> values;

  services.clock.restart();
  for (int64_t step = 1; step <= last_step; ++step) {
    const int32_t program = order.program(step);
    const ddh_program_desc& described = *setup.model.programs[program];
    monitor.step_begin(step);
    const double seed_scale = seed_scale_for(order.count(step), loss_scale.value());
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
                     {values, order.turns().size() > 1 ? described.name : "", order.count(step),
                      program == setup.train_programs.front()});
    require_success_possible(loss_scale.step_done(!outcome.nonfinite.empty()), outcome, block);
    schedules.step_done(step, block.skip != 0, values.front().value);
    if (outcome.stop) return {step, true};
    updates.step_done(step);
    if (eval_every > 0 && step % eval_every == 0) {
      buffers.sync();  // the values that a file would have
      evaluate_all(setup, evaluations, step, monitor, schedules);
    }
  }
  return {last_step, false};
}

}  // namespace ddhost
