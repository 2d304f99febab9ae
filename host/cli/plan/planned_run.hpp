// SPDX-License-Identifier: Apache-2.0
//
// cli/plan/planned_run.hpp: the plan of a command line, with changes (`ddhost plan`, --fit). All but text_of_loader is called
// where plugins may be loaded.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/words/command_line.hpp"
#include "config/user_config.hpp"
#include "engine/loop/memory_plan.hpp"
#include "launch/kv.hpp"
#include "launch/launch.hpp"
#include "launch/progress.hpp"
#include "plan/prepare.hpp"
#include "plugin/registry.hpp"

namespace ddhost {

// Plans runs one after the other; a model that the next run has too is made once. Errors are in the user's words.
class RunPlanner {
 public:
  // Of all ranks, or of the first and the last of more than `most_ranks`.
  MemoryPlan plan(const PreparedRun& run, int most_ranks = kMostPlannedRanks);

 private:
  KvLocal kv_;
  Progress progress_{1};
  ProgressOfRank record_{progress_, 0};
  MemoryPlanner planner_;
};

// The command line with `more`.
UserConfig user_config(const CommandLine& line, const Registry& registry, const std::vector<Override>& more);

// What `say` returns in a loader that starts no rank. `end`: how the loader has ended.
std::string text_of_loader(Outcome& end, const std::function<std::string(LoaderRecord&)>& say);

// Their names, sorted.
std::vector<std::string> all_strategies(const Registry& registry);

}  // namespace ddhost
