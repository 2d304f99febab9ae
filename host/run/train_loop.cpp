// SPDX-License-Identifier: Apache-2.0
#include "run/train_loop.hpp"

#include <cmath>
#include <map>
#include <optional>

#include "run/buffers.hpp"
#include "run/evaluate.hpp"
#include "run/loss_scale.hpp"
#include "schedule/schedule.hpp"

namespace ddhost {
namespace {

// What the steps train on. Refuses what the model can't take before anything is computed.
TrainOrder make_order(const TrainSetup& setup) {
  const Config& config = setup.services.config;
  if (setup.train_programs.size() > 1 && !config.get<std::string>("data.order").empty())
    ddh::fail(DDH_INVALID_ARGUMENT, "data.order='", config.get<std::string>("data.order"),
              "' orders the samples of one ", "program, and this run trains ", setup.train_programs.size(),
              "; leave it out, or name one in train.programs");
  const SampleCut cut{static_cast<uint64_t>(config.get<int64_t>("data.micro_batch")),
                      static_cast<uint64_t>(setup.services.seat.world_size),
                      static_cast<uint64_t>(config.get<int64_t>("train.grad_accum_steps"))};
  std::map<int32_t, Sampler> samplers;
  for (const int32_t program : setup.train_programs) {
    samplers.try_emplace(program, setup.model.programs[program]->n_samples,
                         static_cast<uint64_t>(config.get<int64_t>("run.seed")), cut,
                         config.get<std::string>("data.order"), epoch_end(config));
  }
  TrainOrder order(setup.train_programs, std::move(samplers));
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

// Losses of several programs in turn say nothing about getting better.
void require_one_loss(const TrainSetup& setup, const Schedule& schedule, bool evaluates) {
  if (evaluates || setup.train_programs.size() < 2 || !schedule.reads_losses()) return;
  ddh::fail(DDH_INVALID_ARGUMENT, "schedule.type=", setup.services.config.get<std::string>("schedule.type"),
            " goes by one loss, and this run trains ", setup.train_programs.size(),
            " programs in turn; set train.eval_every, or choose another schedule");
}

// The gradient is divided by the one and scaled for the other.
void require_same_count(double counted, double announced) {
  if (counted == announced) return;
  ddh::fail(DDH_INTERNAL, "the model's batches announced ", announced, " targets of the loss, its metric 0 counted ",
            counted, "; mend the model");
}

void require_success_possible(bool possible, const StepOutcome& outcome, const ddh_step_block& block) {
  if (possible) return;
  ddh::fail(DDH_FAILED_PRECONDITION, "step ", block.step, ": ", outcome.nonfinite,
            ", and the loss scale is at its smallest (", block.loss_scale,
            "): lower optimizer.lr, set precision.compute=bf16, or go on with ", "precision.loss_scale_at_min=keep");
}

}  // namespace

EpochEnd epoch_end(const Config& config) {
  if (config.find("data.drop_last")->value.is_null()) return EpochEnd::join;
  return config.get<bool>("data.drop_last") ? EpochEnd::drop : EpochEnd::shorten;
}

TrainEnd train_loop(TrainSetup setup, Monitor& monitor) {
  RankServices& services = setup.services;
  const Config& config = services.config;
  const auto accum = static_cast<uint64_t>(config.get<int64_t>("train.grad_accum_steps"));
  const int64_t last_step = config.get<int64_t>("train.steps"), eval_every = config.get<int64_t>("train.eval_every");

  const std::unique_ptr<Schedule> schedule = make_schedule(config, /*evaluates=*/eval_every > 0);
  require_one_loss(setup, *schedule, eval_every > 0);
  const TrainOrder order = make_order(setup);
  LossScale loss_scale(LossScaleSettings::from(config));
  const std::optional<Evaluation> evaluation =
      eval_every > 0 ? std::optional<Evaluation>(std::in_place, setup) : std::nullopt;
  Loader loader(setup.model_inst, setup.model_table, setup.model_callers, order,
                {1, last_step, accum, static_cast<uint64_t>(services.seat.rank),
                 static_cast<uint64_t>(services.seat.world_size)});

  Buffers buffers(setup.model, services, config.get<bool>("train.sync_buffers"));

  services.clock.restart();
  for (int64_t step = 1; step <= last_step; ++step) {
    const int32_t program = order.program(step);
    const ddh_program_desc& described = *setup.model.programs[program];
    monitor.step_begin(step);
    const double seed_scale = seed_scale_for(order.count(step), loss_scale.value());
    services.step->begin(step, program, schedule->lr(step), seed_scale, loss_scale.value());
    setup.engine.step_begin(program, step);
    buffers.sync();

    MetricSums metrics;
    double announced_count = 0;
    for (uint64_t m = 0; m < accum; ++m) {
      const Batch batch = loader.next(services.clock);
      setup.engine.run(setup.programs.of(program), {step, m, services.comm->global_micro_batch(m)}, batch, seed_scale);
      setup.engine.add_metrics(program, m, described.n_metrics, metrics.sum.data(), metrics.count.data());
      setup.engine.discard(m);
      metrics.items += static_cast<double>(batch.info().items);
      announced_count += batch.info().loss_count;
    }
    require_same_count(metrics.count[0], announced_count);
    services.step->set_metrics(metrics, services.seat.progress.stop_requested());
    setup.engine.step();

    const ddh_step_block& block = services.step->block();
    const StepOutcome& outcome = services.step->outcome();
    monitor.step_end(block, outcome, order.turns().size() > 1 ? described.name : "");
    require_success_possible(loss_scale.step_done(!outcome.nonfinite.empty()), outcome, block);
    schedule->step_done({block.skip != 0, outcome.world.sum[0] / outcome.world.count[0]});
    if (outcome.stop) return {step, true};
    if (evaluation && step % eval_every == 0) {
      buffers.sync();  // the values that a file would hold
      const double val_loss = evaluation->mean_loss(step);
      monitor.evaluated(step, val_loss);
      schedule->evaluated(val_loss);
    }
  }
  return {last_step, false};
}

}  // namespace ddhost
