// SPDX-License-Identifier: Apache-2.0
//
// plan/resume.hpp: --resume: finds the checkpoint that a run resumes from, and compares the configurations.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_folder.hpp"
#include "plan/prepare.hpp"

namespace ddhost {

// Hashes of the plugins (with their builds), the ABI and the configuration.
std::vector<Fingerprint> fingerprints_of(const PreparedRun& run);

// Throws if --resume names a folder that is not a checkpoint; the error lists the choices. Called before the run's folder is
// created.
void require_checkpoint(const PreparedRun& run);

// From which the run in the folder can go on: on the disk and in memory (checkpoint.memory_every), the newest first.
std::vector<CheckpointPlace> resumable_checkpoints(const std::filesystem::path& run_dir);

// Sets RunPlan::resume. The caller holds the folder's lock. Throws if no checkpoint can be used (the error lists the
// choices), or if options differ that must not. Returns warnings.
std::vector<std::string> choose_checkpoints(PreparedRun& run);

}  // namespace ddhost
