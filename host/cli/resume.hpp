// SPDX-License-Identifier: Apache-2.0
//
// cli/resume.hpp: --resume: finds the checkpoint that a run resumes from, and compares the configurations.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/prepare.hpp"

namespace ddhost {

// Throws if --resume names a folder that is not a checkpoint; the error lists the choices. Called before the run's folder is
// created.
void require_checkpoint(const PreparedRun& run);

// Sets RunPlan::resume. The caller holds the folder's lock. Throws if no checkpoint can be used (the error lists the
// choices), or if options differ that must not. Returns warnings.
std::vector<std::string> choose_checkpoints(PreparedRun& run);

}  // namespace ddhost
