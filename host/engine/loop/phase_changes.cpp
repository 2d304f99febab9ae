// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/phase_changes.hpp"

#include <spdlog/spdlog.h>

#include "engine/weights/phase_state.hpp"

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

}  // namespace ddhost
