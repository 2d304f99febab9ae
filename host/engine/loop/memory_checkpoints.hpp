// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/memory_checkpoints.hpp: where the checkpoints of checkpoint.memory_every are, and from which of them a run can go
// on. On one host they are whole (checkpoint/memory_folder.hpp); with launchers on several hosts each host has parts
// (checkpoint/host_parts.hpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/loop/checkpoint_settings.hpp"
#include "engine/record/step_count.hpp"
#include "engine/services/tables/interfaces.hpp"
#include "engine/settings/run_plan.hpp"
#include "engine/state/checkpoint_tensors.hpp"
#include "engine/state/part_moves.hpp"

namespace ddhost {

class MemoryCheckpoints {
 public:
  // A checkpoint from which the run may go on.
  struct Place {
    std::filesystem::path folder;
    std::optional<FoundParts> parts = std::nullopt;  // of the hosts, which must be brought together first
  };

  // The arguments outlive the object.
  MemoryCheckpoints(RankServices& services, const RunPlan& plan, const CheckpointSettings& settings)
      : services_(services), plan_(plan), settings_(settings) {}

  // For SaveSettings: the folder that takes the place of the run's, and what each host has of its own. `resumed_from`: the
  // checkpoint from which the run goes on; "": it begins.
  [[nodiscard]] std::filesystem::path root() const;
  [[nodiscard]] std::optional<HostSave> by_host(const std::filesystem::path& resumed_from) const;

  // Whether this is the folder of such a checkpoint.
  [[nodiscard]] bool holds(const std::filesystem::path& checkpoint) const;
  // For run.lock, where the run goes on after the step of this checkpoint ("": it begins).
  [[nodiscard]] StepNumbers numbers_after(int64_t step, const std::filesystem::path& checkpoint) const;

  // RunPlan::resume, and those in the memory of the hosts, the newest first. Throws if there is none and the run must not begin
  // anew. [collective]
  [[nodiscard]] std::vector<Place> places() const;
  // Why the hosts can't have all of a checkpoint; "": they have.
  struct Lack {
    std::string why;
    bool is_damage = false;
  };
  // Gives this host all of it. [collective]
  [[nodiscard]] Lack bring_together(const Place& place) const;
  // Throws if the run can't go on from it. The head has done that where all of it was there. [collective]
  void check(const Place& place, const Manifest& manifest) const;
  // A damaged checkpoint is no longer listed.
  void set_aside(const Place& place) const;

  // Makes the folder, with no checkpoints but that of `resumed_step`. Throws if there is no memory for what the run saves, and
  // for all of a checkpoint after a restart. [collective]
  void require_room(const StateSource& source, const CheckpointLayout& layout, int64_t resumed_step) const;
  // Removes those before a new one that is there on all hosts. Returns a sentence about a failure, or "".
  [[nodiscard]] std::string remove_before(int64_t step) const;
  // Removes all of this host.
  void remove() const;

 private:
  [[nodiscard]] bool makes_files() const {
    return plan_.memory_by_host ? services_.seat.local_rank() == 0 : services_.seat.rank == 0;
  }
  // Of one checkpoint, in the memory of this host.
  struct Size {
    uint64_t saved, whole;  // what the ranks save there, and all of it
  };
  [[nodiscard]] Size size_here(const StateSource& source, const CheckpointLayout& layout) const;
  [[nodiscard]] uint64_t first_run(const std::filesystem::path& resumed_from) const;
  void require_own_folder() const;

  RankServices& services_;
  const RunPlan& plan_;
  const CheckpointSettings& settings_;
};

}  // namespace ddhost
