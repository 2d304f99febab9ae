// SPDX-License-Identifier: Apache-2.0
//
// checkpoint/checkpoint_import.hpp: a checkpoint of this program from one that another program wrote, with the state of
// its optimizer. What other programs do not say (the model's layout, the configuration) comes from a checkpoint of the run
// that is to go on, such as one after its first step.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/converted_file.hpp"
#include "checkpoint/manifest.hpp"

namespace ddhost {

struct ImportedCheckpoint {
  std::filesystem::path folder;
  std::vector<std::string> notes;  // sentences about what was done with the values
};

// Writes <run_dir>/checkpoints/step-N for the N updates that the optimizer in `from` has done, and returns its folder.
// `like`: a checkpoint of the run, whose values are all replaced. Throws where `from` lacks a tensor, or has one more, or
// where `like` has numbers that an import can't give (phases, schedules with a state, several optimizers).
ImportedCheckpoint import_checkpoint(const std::filesystem::path& from, const ConvertedFile& converted,
                                     const std::filesystem::path& like, const std::filesystem::path& run_dir);

}  // namespace ddhost
