// SPDX-License-Identifier: Apache-2.0
//
// plan/run_facts.hpp: what a run notes of itself in run.json when it begins (engine/record/run_history.hpp).
#pragma once

#include <string>
#include <vector>

#include "plan/prepare.hpp"

namespace ddhost {

// A JSON object: time, version, machine, plugins, options that differ from their defaults, `warnings`. Called in the loader.
std::string run_facts(const PreparedRun& run, const std::vector<std::string>& warnings);

}  // namespace ddhost
