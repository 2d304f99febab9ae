// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/update_programs.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <numeric>

#include "engine/loop/course.hpp"

namespace ddhost {

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
