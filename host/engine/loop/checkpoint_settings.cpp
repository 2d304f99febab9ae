// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/checkpoint_settings.hpp"

#include <algorithm>
#include <string>

#include "ddh/sdk/plugin.hpp"
#include "engine/loop/room.hpp"

namespace ddhost {
namespace {

// About how many checkpoints a run saves from its first step on.
int64_t saves_of(const CheckpointSettings& settings, const TrainOrder& order) {
  TrainPosition at = order.begin();
  if (order.is_at_end(at)) return 0;
  const int64_t steps = order.last_step() - at.step;
  int64_t saves = settings.at_phase_end ? static_cast<int64_t>(order.phases().size()) * order.cycles() - at.phase : 1;
  if (settings.every > 0) saves += steps / settings.every;
  if (settings.best) ++saves;
  if (settings.every_epochs > 0) {
    const TrainStep first = order.advance(at);
    const double epochs = static_cast<double>(steps) * static_cast<double>(first.cut.per_step()) /
                          static_cast<double>(order.epoch_size(first.program));
    saves += static_cast<int64_t>(epochs / static_cast<double>(settings.every_epochs));
  }
  return saves;
}

}  // namespace

CheckpointSettings CheckpointSettings::from(const RunConfig& config) {
  return {config.get<int64_t>("checkpoint.every"),
          config.get<int64_t>("checkpoint.every_epochs"),
          config.get<double>("checkpoint.every_minutes"),
          config.get<int64_t>("checkpoint.memory_every"),
          config.get<int64_t>("checkpoint.memory_copies"),
          !config.get<std::string>("checkpoint.best.metric").empty(),
          config.get<bool>("checkpoint.at_phase_end"),
          config.get<bool>("checkpoint.async"),
          config.get<bool>("checkpoint.on_exit"),
          static_cast<uint64_t>(config.get<int64_t>("checkpoint.max_bytes_in_flight")),
          {config.get<int64_t>("checkpoint.keep_last"), config.get<int64_t>("checkpoint.keep_every")}};
}

int64_t checkpoints_to_come(const CheckpointSettings& settings, const TrainOrder& order, int64_t there) {
  const int64_t saves = saves_of(settings, order);
  if (settings.keep.last == 0 || saves == 0) return saves;
  const int64_t forever = settings.keep.every > 0 ? order.last_step() / settings.keep.every : 0;
  const int64_t kept = settings.keep.last + 1 + forever + (settings.best ? 1 : 0);  // one more while it is written
  return std::min(saves, std::max<int64_t>(kept - there, 1));
}

void require_disk(const CheckpointSettings& settings, const TrainOrder& order, const std::filesystem::path& run_dir,
                  uint64_t bytes) {
  const auto there = static_cast<int64_t>(list_checkpoints(run_dir).size());
  const int64_t to_come = checkpoints_to_come(settings, order, there);
  const double free = free_bytes(run_dir), needed = static_cast<double>(to_come) * static_cast<double>(bytes);
  if (needed <= free) return;
  ddh::fail(DDH_RESOURCE_EXHAUSTED, "the checkpoints of this run need ", mib_text(needed), " (", to_come, " of ",
            mib_text(static_cast<double>(bytes)), " each), but '", run_dir.string(), "' has ", mib_text(free),
            " free; free some space, give another run.dir, or lower checkpoint.keep_last");
}

}  // namespace ddhost
