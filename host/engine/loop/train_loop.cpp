// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/train_loop.hpp"

#include <spdlog/spdlog.h>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "engine/loop/evaluations.hpp"
#include "engine/record/slow_ranks.hpp"
#include "engine/settings/course.hpp"
#include "engine/settings/loss_scale.hpp"
#include "engine/state/buffers.hpp"
#include "engine/state/state_entries.hpp"

namespace ddhost {
namespace {

// Backward differentiates seed_scale * SUM of losses. A power of two near 1 / (samples of a step) keeps gradients near
// their final size and costs no rounding; the rest of the mean is in inv_scale.
double seed_scale_for(uint64_t n_samples, double loss_scale) {
  return loss_scale * std::exp2(-std::round(std::log2(static_cast<double>(n_samples))));
}

// The gradient is divided by the count of metric 0, which must equal the count that the batch announced.
void require_same_count(double counted, double announced) {
  if (counted == announced) return;
  ddh::fail(DDH_INTERNAL, "a batch of the model announced ", announced,
            " targets of the loss, but its metric 0 counted ", counted, "; fix the model");
}

void require_success_possible(bool possible, const StepOutcome& outcome, const ddh_step_block& block) {
  if (possible) return;
  ddh::fail(DDH_FAILED_PRECONDITION, "step ", block.step, ": ", outcome.nonfinite,
            ", and the loss scale is at its smallest (", block.loss_scale,
            "): lower optimizer.lr, set precision.compute=bf16, or set ", "precision.loss_scale_at_min=keep");
}

// Parameters that never change learn nothing, however long the run is.
void require_progress(int64_t skipped, int64_t most, const StepOutcome& outcome, const ddh_step_block& block) {
  if (most == 0 || skipped < most) return;
  ddh::fail(DDH_FAILED_PRECONDITION, "step ", block.step, ": ", outcome.nonfinite, ", and ", skipped,
            " steps in a row were skipped for such a reason: lower optimizer.lr, set train.clip_norm, or raise "
            "precision.max_skipped (0: no limit)");
}

// The update programs of a model, every train.update_every steps or between phases: forward only over all samples, equal on
// every rank, to recompute state of the model.
class UpdatePrograms {
 public:
  // Warns if the run never runs the model's update programs. Throws if train.update_every is given and there are none.
  explicit UpdatePrograms(const TrainSetup& setup);
  // Called after a step: runs them in the model's order if they are due. [collective]
  void step_done(int64_t step) const;
  // Runs some of them now. [collective]
  void run(const std::vector<int32_t>& programs, int64_t step) const {
    for (const int32_t program : programs) run(program, step);
  }

 private:
  void run(int32_t program, int64_t step) const;

  const TrainSetup& setup_;
  const int64_t every_;
  const std::vector<int32_t> programs_;
};

// The work between the phases of a run: update programs, resets of optimizer state, and state that no later phase needs.
class PhaseChanges {
 public:
  // All outlive this object.
  PhaseChanges(const TrainSetup& setup, const TrainOrder& order, const UpdatePrograms& updates)
      : setup_(setup), order_(order), updates_(updates) {}

  // Whether before() resets or frees optimizer state.
  [[nodiscard]] bool changes_state(const TrainStep& step) const { return resets_state(step) || frees_state(step); }
  // Before a step that may be the first of its phase, and after one that may be the last. [collective]
  void before(const TrainStep& step) const;
  void after(const TrainStep& step) const;

 private:
  [[nodiscard]] const PhaseSpec& spec_of(const TrainStep& step) const {
    return setup_.phases[order_.place_of(step.phase)];
  }
  [[nodiscard]] bool resets_state(const TrainStep& step) const {
    return step.phase_step == 1 && spec_of(step).new_state && step.step != 1;  // at the first step it is new anyway
  }
  [[nodiscard]] bool frees_state(const TrainStep& step) const {
    return step.phase_step == 1 && step.phase > 0 &&
           order_.programs_from(step.phase) != order_.programs_from(step.phase - 1);
  }
  void say(const TrainStep& step) const;

  const TrainSetup& setup_;
  const TrainOrder& order_;
  const UpdatePrograms& updates_;
};

void PhaseChanges::before(const TrainStep& step) const {
  if (step.phase_step != 1) return;
  const PhaseSpec& spec = spec_of(step);
  say(step);
  updates_.run(spec.updates_before, step.step);
  if (frees_state(step)) {
    setup_.services.step->optimizers().set_later(order_.programs_from(step.phase));
    free_past_state(setup_.state, setup_.services.step->optimizers());
  }
  if (!resets_state(step)) return;
  for (const int32_t program : spec.turns)
    renew_optimizer_state(setup_.state, *setup_.services.step, program, *setup_.services.staging);
}

void PhaseChanges::after(const TrainStep& step) const {
  if (order_.ends_phase(step)) updates_.run(spec_of(step).updates, step.step);
}

// Logged once for each phase, because there may be many short cycles.
void PhaseChanges::say(const TrainStep& step) const {
  const size_t count = order_.phases().size();
  if (setup_.services.seat.rank != 0 || count * static_cast<size_t>(order_.cycles()) == 1) return;
  if (step.phase >= static_cast<int64_t>(count)) return;
  std::string programs;
  for (const int32_t program : spec_of(step).turns)
    programs += (programs.empty() ? "" : ", ") + std::string(setup_.model.programs[program]->name);
  const std::string cycles = order_.cycles() > 1 ? ddh::str(", in ", order_.cycles(), " cycles") : "";
  setup_.services.log->info("phase {} of {}{}: {}, {} steps", step.phase + 1, count, cycles, programs,
                            order_.steps_of(step.phase));
}

UpdatePrograms::UpdatePrograms(const TrainSetup& setup)
    : setup_(setup),
      every_(setup.services.config.get<int64_t>("train.update_every")),
      programs_(update_programs_of(setup.model)) {
  if (every_ > 0 && programs_.empty())
    ddh::fail(DDH_FAILED_PRECONDITION, "model '", setup.model.name,
              "' has no update program; set train.update_every=0");
  if (every_ == 0 && !programs_.empty() && updates_of(setup.phases).empty() && setup.services.seat.rank == 0)
    setup.services.log->warn("model '{}' has update programs, but train.update_every=0 never runs them",
                             setup.model.name);
}

void UpdatePrograms::step_done(int64_t step) const {
  if (every_ == 0 || step % every_ != 0) return;
  run(programs_, step);
}

// A stop signal takes effect after the update: half-updated state would be useless in a file of weights.
void UpdatePrograms::run(int32_t program, int64_t step) const {
  const uint64_t n_samples = setup_.model.programs[program]->n_samples;
  const auto micro_batch = micro_batch_of(setup_.services.config, *setup_.model.programs[program]);
  for (uint64_t first = 0, b = 0; first < n_samples; first += micro_batch, ++b) {
    std::vector<int64_t> samples(std::min(micro_batch, n_samples - first));
    std::iota(samples.begin(), samples.end(), static_cast<int64_t>(first));
    const auto place = static_cast<int64_t>(b);  // the same on every rank: all run the same micro-batches
    const Batch batch = make_batch(setup_.model_inst, setup_.model_table, setup_.model_callers.main,
                                   setup_.model_callers.main, {program, step, 0, place}, samples);
    setup_.runner.run(setup_.programs.of(program), MicroBatch{step, 0, place}, batch, 1.0);
    setup_.runner.discard(0);
  }
}

// The loop itself. Members are what outlives a step.
class TrainLoop {
 public:
  TrainLoop(const TrainSetup& setup, const TrainOrder& order, PhaseRates& rates, RunOutput& output,
            Checkpointing& checkpoints, ReplicaChecks& replicas)
      : setup_(setup),
        order_(order),
        rates_(rates),
        output_(output),
        checkpoints_(checkpoints),
        replicas_(replicas),
        services_(setup.services),
        accum_(static_cast<uint64_t>(services_.config.get<int64_t>("train.grad_accum_steps"))),
        announced_(accum_),
        position_(order.begin()),
        loss_scale_(LossScaleSettings::from(services_.config)),
        max_skipped_(services_.config.get<int64_t>("precision.max_skipped")),
        evaluations_(setup_, order_, rates_, output_),
        updates_(setup_),
        changes_(setup_, order_, updates_),
        slow_ranks_(services_),
        buffers_(setup_.model_callers.main, setup_.model_inst, setup_.model_table, setup_.model, services_, accum_,
                 services_.config.get<bool>("train.sync_buffers")) {
    checkpoints.restore(state());
  }

  TrainEnd run() {
    const bool is_pending = checkpoints_.has_evaluation_pending();
    const bool goes_on = checkpoints_.has_resumed() && !is_pending;
    if (goes_on && (order_.is_at_end(position_) || evaluations_.end_run())) return {position_.step, false, true};
    output_.begin(order_.epoch_size(order_.phases().front().turns.front().program));
    if (checkpoints_.has_resumed()) output_.resumed(checkpoints_.resumed_from());
    if (is_pending) {
      if (!evaluate()) return {position_.step, true, false};
      checkpoints_.late_evaluation_done(state());
      tell_of_saves();
      if (evaluations_.end_run()) return {position_.step, false, false};
    }
    Loader loader(setup_.model_inst, setup_.model_table, setup_.model_callers, order_, position_,
                  static_cast<uint64_t>(services_.seat.rank), services_.clock);
    services_.clock.restart();
    Next next = Next::step;
    while (next == Next::step && !order_.is_at_end(position_)) {
      const TrainStep now = order_.advance(position_);
      train_step(now, loader);
      next = finish_step(now);
    }
    return {position_.step, next == Next::stop, false};
  }

 private:
  enum class Next { step, end, stop };

  void train_step(const TrainStep& now, Loader& loader) {
    const ddh_program_desc& described = *setup_.model.programs[now.program];
    output_.step_begin(now.step);
    if (changes_.changes_state(now)) checkpoints_.before_update();
    changes_.before(now);
    const double seed_scale = seed_scale_for(now.span.count, loss_scale_.value());
    services_.step->begin(now.step, now.program, rates_.lr(described.optimizer, now), seed_scale, loss_scale_.value());
    setup_.runner.step_begin(now.program, now.step, now.step == order_.last_step());
    buffers_.sync();

    metrics_.begin(described.n_metrics, accum_);
    const bool results_at_once = services_.device->is_host_memory();
    for (uint64_t m = 0; m < accum_; ++m) {
      const Batch batch = loader.next();
      setup_.runner.run(setup_.programs.of(now.program), {now.step, m, services_.comm->global_micro_batch(m)}, batch,
                        seed_scale);
      metrics_.items(m) = static_cast<double>(batch.info().items);
      announced_[m] = batch.info().loss_count;
      if (results_at_once) take_results(now.program, m);
    }
    const auto take_all = [this, program = now.program] {
      for (uint64_t m = 0; m < accum_; ++m) take_results(program, m);
    };
    const RankRecord& record = services_.seat.record;
    services_.step->set_metrics(metrics_,
                                {record.stop_requested() || !output_.failure().empty(), record.saves_requested(),
                                 checkpoints_.is_writing(), checkpoints_.wants_by_clock()},
                                results_at_once ? std::function<void()>() : take_all);
    checkpoints_.before_update();
    setup_.runner.step();
    if (services_.step->outcome().is_quiet) return;
    warn_of_left_out(buffers_.fold(), now.step);
    report_quiet(services_.step->outcome().quiet);
    report_into(reported_, now.program, services_.step->outcome().world);
  }

  void report_into(Reported& reported, int32_t program, const FoldedMetrics& metrics) {
    report(setup_.model_callers.main, setup_.model_inst, setup_.model_table, setup_.model, program, metrics, reported);
  }

  // Records the steps of which only now the metrics of all ranks are known.
  void report_quiet(const std::vector<FoldedMetrics>& metrics) {
    Reported reported;
    for (size_t i = 0; i < std::min(metrics.size(), quiet_.size()); ++i) {
      QuietStep& step = quiet_[i];
      report_into(reported, step.facts.work.program, metrics[i]);
      step.facts.values = reported.values;
      step.outcome.world = metrics[i];
      output_.step_end(step.block, step.outcome, step.facts);
    }
    quiet_.clear();
  }

  // `buffer`: what Buffers::fold returned. Said once, because it may be so in every step.
  void warn_of_left_out(const std::string& buffer, int64_t step) {
    if (buffer.empty() || std::exchange(has_left_out_, true) || services_.seat.rank != 0) return;
    services_.log->warn(
        "step {}: a micro-batch's contribution to buffer '{}' is not finite, so this micro-batch changes no buffer; "
        "later ones are left out without a warning; lower optimizer.lr, or set precision.compute=bf16 if it is fp16",
        step, buffer);
  }

  // Records the metrics of micro-batch `m` and its contributions to buffers, and frees it.
  void take_results(int32_t program, uint64_t m) {
    setup_.runner.metrics(program, m, metrics_.sums(m), metrics_.counts(m));
    require_same_count(metrics_.counts(m)[0], announced_[m]);
    buffers_.collect(program, m);
    setup_.runner.discard(m);
  }

  // Records the step and does what follows it.
  Next finish_step(const TrainStep& now) {
    const ddh_step_block& block = services_.step->block();
    const StepOutcome& outcome = services_.step->outcome();
    output_.work_done(now.step, now.cut.micro_batch);
    const StepFacts facts{reported_.values,
                          setup_.train_programs.size() > 1 ? setup_.model.programs[now.program]->name : "",
                          now.span.count,
                          {now.program, now.cut.micro_batch},
                          epoch_place(order_, now),
                          output_.step_ms(),
                          order_.place_of(now.phase)};
    if (outcome.is_quiet)
      quiet_.push_back({block, outcome, facts});
    else
      output_.step_end(block, outcome, facts);
    slow_ranks_.step_done(now.step);
    require_success_possible(loss_scale_.step_done(!outcome.nonfinite.empty()), outcome, block);
    skipped_in_a_row_ = block.skip == 0 ? 0 : skipped_in_a_row_ + 1;
    require_progress(skipped_in_a_row_, max_skipped_, outcome, block);
    // Other groups can't know what one of them has skipped, nor its loss, and rates are equal on all ranks.
    rates_.step_done(now, block.skip != 0 && !outcome.is_of_group,
                     outcome.is_quiet ? NAN : reported_.values.front().value);
    const bool stops = outcome.requests.stop || is_named_last(now.step);
    if (!stops || checkpoints_.saves_at_stop()) {
      updates_.step_done(now.step);
      changes_.after(now);
    }
    if (order_.is_at_end(position_)) settle(now.step);
    const bool evaluates = evaluations_.are_due(now);
    const bool is_evaluated = !evaluates || (!stops && evaluate());
    Next next = stops || !is_evaluated ? Next::stop : Next::step;
    if (next == Next::step && evaluates && evaluations_.end_run()) next = Next::end;
    const bool ends = next != Next::step || order_.is_at_end(position_);
    replicas_.step_done(now.step, ends);
    StepRequests requests = outcome.requests;
    requests.stop = stops;
    checkpoints_.step_done({now, requests, ends, !is_evaluated}, state());
    // Nothing is known of these steps after a resume.
    if (!quiet_.empty() && (ends || checkpoints_.has_begun(now.step)))
      report_quiet(services_.step->share_quiet_metrics());
    if (ends) output_.write_step();  // before a checkpoint of this step is told, so that a resumed run has the row
    tell_of_saves();
    return next;
  }

  void tell_of_saves() {
    for (const CheckpointPlace& saved : checkpoints_.take_committed()) output_.saved(saved.step, saved.folder);
  }

  // Where ranks do not agree in every step, the launcher says after which one they end.
  bool is_named_last(int64_t step) {
    return services_.step->world_every() > 1 && services_.seat.record.last_step_before(step + 1) <= step;
  }

  // The strategy's ranks agree at the end, also between the steps of its rhythm.
  void settle(int64_t step) {
    if (services_.step->world_every() == 1) return;
    checkpoints_.before_update();
    setup_.runner.settle();
    replicas_.settled(step);
  }

  bool evaluate() {
    buffers_.sync();  // the values that a file would hold
    if (setup_.shown->exist()) checkpoints_.before_update();
    setup_.shown->show();
    const bool is_done = evaluations_.run(position_);
    setup_.shown->restore();
    return is_done;
  }

  TrainState state() {
    return {order_, position_, loss_scale_, skipped_in_a_row_, rates_, evaluations_.patience(), evaluations_.best()};
  }

  TrainSetup setup_;
  const TrainOrder& order_;
  PhaseRates& rates_;
  RunOutput& output_;
  Checkpointing& checkpoints_;
  ReplicaChecks& replicas_;
  RankServices& services_;
  const uint64_t accum_;
  std::vector<double> announced_;  // targets of the loss in each micro-batch, as its batch said
  TrainPosition position_;
  LossScale loss_scale_;
  const int64_t max_skipped_;
  int64_t skipped_in_a_row_ = 0;
  bool has_left_out_ = false;  // a micro-batch, from the buffers
  Evaluations evaluations_;
  const UpdatePrograms updates_;
  const PhaseChanges changes_;
  SlowRanks slow_ranks_;
  Buffers buffers_;
  MicroMetrics metrics_;
  Reported reported_;  // of the step
  // A step whose metrics the other ranks do not know yet.
  struct QuietStep {
    ddh_step_block block;
    StepOutcome outcome;
    StepFacts facts;
  };
  std::vector<QuietStep> quiet_;
};

}  // namespace

TrainEnd train_loop(const TrainSetup& setup, const TrainOrder& order, PhaseRates& rates, RunOutput& output,
                    Checkpointing& checkpoints, ReplicaChecks& replicas) {
  return TrainLoop(setup, order, rates, output, checkpoints, replicas).run();
}

}  // namespace ddhost
