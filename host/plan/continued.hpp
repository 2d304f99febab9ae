// SPDX-License-Identifier: Apache-2.0
//
// plan/continued.hpp: compares a run with that of the checkpoint from which it goes on: the configuration, and what else gives
// other bits.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "plan/prepare.hpp"

namespace ddhost {

// The options of a configuration, by their names: "optimizer.lr".
std::map<std::string, Json> flat(const Json& config);

// Throws the list of what differs and is not allowed to. `of`: what was saved, for people.
void check_config(const Json& saved_config, const Config& config, const std::string& of);

// A resumed run keeps these choices, which its bits rest on, also where `auto` would choose anew.
void keep_choices(const Json& saved_config, Config& config);

// Throws if other instructions or another order of samples give other bits and this is not allowed. Returns warnings.
std::vector<std::string> check_manifest(const Manifest& manifest, const PreparedRun& run, const std::string& of);

// All of these. Returns warnings about other bits.
std::vector<std::string> continue_configuration(const Manifest& manifest, PreparedRun& run, const std::string& of);

// For the ranks, which compare the run with a checkpoint in the memory of the hosts. `run` outlives the ranks.
RunPlan::MemoryResume memory_resume(const PreparedRun& run, uint64_t first_run, const std::string& otherwise);

}  // namespace ddhost
