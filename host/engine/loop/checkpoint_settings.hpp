// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/checkpoint_settings.hpp: the options of section `checkpoint`, and how many checkpoints they make.
#pragma once

#include <cstdint>
#include <filesystem>

#include "checkpoint/checkpoint_folder.hpp"
#include "engine/samples/train_order.hpp"
#include "engine/services/run_config.hpp"

namespace ddhost {

// Section `checkpoint`.
struct CheckpointSettings {
  int64_t every = 0;          // steps; 0: not by steps
  int64_t every_epochs = 0;   // of the first training program; 0: not by epochs
  double every_minutes = 0;   // 0: not by time
  int64_t memory_every = 0;   // steps between checkpoints in memory, beside those on the disk; 0: none
  int64_t memory_copies = 1;  // hosts that have each part of them
  bool best = false;          // after each evaluation that is better than all before it
  bool at_phase_end = true;
  bool in_background = true;
  bool on_exit = true;      // also where checkpoints are off: after the last step of a run that a signal ends
  uint64_t most_bytes = 0;  // of a rank's copy; 0: no limit
  KeepRule keep;

  static CheckpointSettings from(const RunConfig& config);
  // On the disk.
  [[nodiscard]] bool on() const { return every > 0 || every_epochs > 0 || every_minutes > 0 || best; }
};

// How many checkpoints the rest of a run adds at most to the `there` in its folder at a time. `order` begins where the run
// does.
int64_t checkpoints_to_come(const CheckpointSettings& settings, const TrainOrder& order, int64_t there);

// Throws if the disk has no room for them. `bytes`: of a checkpoint.
void require_disk(const CheckpointSettings& settings, const TrainOrder& order, const std::filesystem::path& run_dir,
                  uint64_t bytes);

}  // namespace ddhost
