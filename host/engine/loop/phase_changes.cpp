// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/phase_changes.hpp"

#include <spdlog/spdlog.h>
#include <algorithm>
#include <numeric>

#include "engine/settings/course.hpp"
#include "engine/state/phase_state.hpp"

namespace ddhost {

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
  monitor_.finish_line();
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

}  // namespace ddhost
