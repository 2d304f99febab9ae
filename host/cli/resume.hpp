// SPDX-License-Identifier: Apache-2.0
//
// cli/resume.hpp: --resume: which checkpoint a run goes on from, and whether its configuration may.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/prepare.hpp"

namespace ddhost {

// Throws, naming the choices, where --resume names a folder that is no checkpoint. Before the run's folder is made.
void require_checkpoint(const PreparedRun& run);

// Sets RunPlan::resume; the caller holds the folder's lock. Throws where no checkpoint can be taken, naming the choices, or
// where the configuration differs in what may not. Returns sentences to warn with.
std::vector<std::string> choose_checkpoints(PreparedRun& run);

}  // namespace ddhost
