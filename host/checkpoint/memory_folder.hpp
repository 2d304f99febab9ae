// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/memory_folder.hpp: where the checkpoints of checkpoint.memory_every are: in a folder of the machine's memory
// (ddh/sdk/memory/memory_disk.hpp) that belongs to the folder of a run, with the files of checkpoint_folder.hpp. It survives
// ranks that are killed, and the launcher removes it at the end. If the launcher is killed too, the next run in the same folder
// uses or removes it.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "checkpoint/checkpoint_folder.hpp"

namespace ddhost {

// Each run has its own, also where users or containers share the memory. `run_dir` is absolute.
std::filesystem::path memory_folder(const std::filesystem::path& run_dir);

// Whether it is there, and only this user can have filled it.
bool has_memory_folder(const std::filesystem::path& run_dir);

// Makes the folder, which only this user can read. False: it was there. Error: there is no such memory, or another user has
// made that folder.
bool make_memory_folder(const std::filesystem::path& run_dir);

// Equal for two hosts that have the same folder, such as containers that share the memory and the host's name. All of it is 0
// where there is no folder.
struct MemoryFolderId {
  uint64_t machine = 0, device = 0, inode = 0;
  auto operator<=>(const MemoryFolderId&) const = default;
};
MemoryFolderId memory_folder_id(const std::filesystem::path& run_dir);

// Those of this user's folder, the newest first, without later steps than the run's last one: they are of a run that was in
// `run_dir` before.
std::vector<CheckpointPlace> list_memory_checkpoints(const std::filesystem::path& run_dir, int64_t last_step);

// Removes what a crash has left, checkpoints of later steps, damaged ones, and all but the newest.
void tidy_memory_folder(const std::filesystem::path& run_dir, int64_t last_step);

// Does nothing if there is no such folder of this user.
void remove_memory_folder(const std::filesystem::path& run_dir) noexcept;

// On several hosts: notes that the folder, if there is one, is that of a run. A host that was cut off may still end the run
// before, and then leaves the folder alone. Two processes may call them at once. False: there is none, or it was removed
// meanwhile.
bool claim_memory_folder(const std::filesystem::path& run_dir, uint64_t run_id);
// Makes the folder and claims it.
void take_memory_folder(const std::filesystem::path& run_dir, uint64_t run_id);
void remove_memory_folder_of(const std::filesystem::path& run_dir, uint64_t run_id) noexcept;

}  // namespace ddhost
