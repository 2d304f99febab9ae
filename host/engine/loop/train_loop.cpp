// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/train_loop.hpp"

#include <cmath>
#include <limits>
#include <map>

#include "engine/loop/buffers.hpp"
#include "engine/loop/checkpointing.hpp"
#include "engine/loop/evaluate.hpp"
#include "engine/loop/loss_scale.hpp"
#include "engine/loop/update_programs.hpp"

namespace ddhost {
namespace {

// What the steps train on. Refuses what the model can't take before anything is computed.
TrainOrder make_order(const TrainSetup& setup, const Checkpointing& checkpoints) {
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
  checkpoints.restore(setup, orders);
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

// Every program that evaluates one of this run's, by the values that a file of weights would hold. False: the run was
// asked to stop in between, and nothing is recorded; a resumed run evaluates again.
bool evaluate_all(const TrainSetup& setup, std::vector<Evaluation>& evaluations, int64_t step, Monitor& monitor,
                  Schedules& schedules) {
  for (Evaluation& evaluation : evaluations)
    if (evaluation.run(step) == nullptr) return false;
  for (const Evaluation& evaluation : evaluations) {
    const std::vector<ReportedValue>& values = evaluation.values();
    const ddh_program_desc& program = *setup.model.programs[evaluation.program()];
    monitor.evaluated(step, values, setup.train_programs.size() > 1 ? program.name : "");
    schedules.evaluated(loss_of(program, values));
  }
  return true;
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

// The loop itself. Members are what outlives a step.
class TrainLoop {
 public:
  TrainLoop(const TrainSetup& setup, Monitor& monitor, Checkpointing& checkpoints)
      : setup_(setup),
        monitor_(monitor),
        checkpoints_(checkpoints),
        services_(setup.services),
        accum_(static_cast<uint64_t>(services_.config.get<int64_t>("train.grad_accum_steps"))),
        last_step_(services_.config.get<int64_t>("train.steps")),
        eval_every_(services_.config.get<int64_t>("train.eval_every")),
        order_(make_order(setup_, checkpoints)),
        loss_scale_(LossScaleSettings::from(services_.config)),
        evaluations_(make_evaluations(setup_)),
        updates_(setup_),
        buffers_(setup_.model_callers.main, setup_.model_inst, setup_.model_table, setup_.model, services_, accum_,
                 services_.config.get<bool>("train.sync_buffers")) {
    require_one_loss(setup_, setup_.schedules, evaluations_);
    checkpoints.restore(loss_scale_, setup_.schedules);
  }

  TrainEnd run() {
    const int64_t before = checkpoints_.first_step_after();
    if (checkpoints_.has_evaluation_pending() && !evaluate(before)) return {before, true};
    Loader loader(setup_.model_inst, setup_.model_table, setup_.model_callers, order_,
                  {before + 1, last_step_, accum_, static_cast<uint64_t>(services_.seat.rank),
                   static_cast<uint64_t>(services_.seat.world_size)});
    services_.clock.restart();
    for (int64_t step = before + 1; step <= last_step_; ++step) {
      train_step(step, loader);
      if (finish_step(step)) return {step, true};
    }
    return {last_step_, false};
  }

 private:
  void train_step(int64_t step, Loader& loader) {
    const int32_t program = order_.program(step);
    const ddh_program_desc& described = *setup_.model.programs[program];
    monitor_.step_begin(step);
    const double seed_scale = seed_scale_for(order_.count(step), loss_scale_.value());
    services_.step->begin(step, program, setup_.schedules.lr(described.optimizer, step), seed_scale,
                          loss_scale_.value());
    setup_.runner.step_begin(program, step);
    buffers_.sync();

    metrics_.begin(described.n_metrics, accum_);
    for (uint64_t m = 0; m < accum_; ++m) {
      const Batch batch = loader.next(services_.clock);
      run_micro_batch(setup_, setup_.programs.of(program), {step, m, services_.comm->global_micro_batch(m)}, batch,
                      seed_scale, metrics_, buffers_);
    }
    const RankRecord& record = services_.seat.record;
    services_.step->set_metrics(metrics_, {record.stop_requested(), record.saves_requested(), checkpoints_.is_writing(),
                                           checkpoints_.wants_by_clock()});
    setup_.runner.step();
    buffers_.fold();
    report(setup_.model_callers.main, setup_.model_inst, setup_.model_table, setup_.model, program,
           services_.step->outcome().world, values_);
  }

  // Records the step and does what follows it. True: the run was asked to stop.
  bool finish_step(int64_t step) {
    const ddh_step_block& block = services_.step->block();
    const StepOutcome& outcome = services_.step->outcome();
    const int32_t program = order_.program(step);
    monitor_.step_end(block, outcome,
                      {values_, order_.turns().size() > 1 ? setup_.model.programs[program]->name : "",
                       order_.count(step), program == setup_.train_programs.front()});
    require_success_possible(loss_scale_.step_done(!outcome.nonfinite.empty()), outcome, block);
    setup_.schedules.step_done(step, block.skip != 0, values_.front().value);
    const bool stops = outcome.requests.stop;
    if (!stops || checkpoints_.saves_at_stop()) updates_.step_done(step);
    const bool evaluates = eval_every_ > 0 && step % eval_every_ == 0;
    const bool is_evaluated = !evaluates || (!stops && evaluate(step));
    const bool ends = stops || !is_evaluated;
    checkpoints_.step_done({step, outcome.requests, ends || step == last_step_, !is_evaluated}, setup_, order_,
                           loss_scale_);
    return ends;
  }

  bool evaluate(int64_t step) {
    buffers_.sync();  // the values that a file would hold
    return evaluate_all(setup_, evaluations_, step, monitor_, setup_.schedules);
  }

  TrainSetup setup_;
  Monitor& monitor_;
  Checkpointing& checkpoints_;
  RankServices& services_;
  const uint64_t accum_;
  const int64_t last_step_, eval_every_;
  const TrainOrder order_;
  LossScale loss_scale_;
  std::vector<Evaluation> evaluations_;
  const UpdatePrograms updates_;
  Buffers buffers_;
  MicroMetrics metrics_;
  std::vector<ReportedValue> values_;  // of the step
};

}  // namespace

TrainEnd train_loop(const TrainSetup& setup, Monitor& monitor, Checkpointing& checkpoints) {
  return TrainLoop(setup, monitor, checkpoints).run();
}

}  // namespace ddhost
