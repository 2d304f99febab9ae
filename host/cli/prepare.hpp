// SPDX-License-Identifier: Apache-2.0
//
// cli/prepare.hpp: the steps between the command line and the start of the ranks.
#pragma once

#include <iosfwd>

#include "config/config.hpp"
#include "engine/loop/run_plan.hpp"
#include "plugin/registry.hpp"

namespace ddhost {

// A plan and what the front keeps of it.
struct PreparedRun : RunPlan {
  Config config;  // complete
  int world_size = 1;
  bool ranks_are_threads = false;  // else one process each
};

// Gives every rank its share of the cores (OMP_NUM_THREADS and its like), unless the user has set them. Before any
// library with a thread pool is loaded.
void share_cores(int world_size);

// Number of ranks that the user asks for; everything of the host's own sections is checked on the way.
int wanted_world_size(const UserConfig& user);

// Finds and loads the plugins, completes the configuration, decides the run's folder (which is not made yet).
PreparedRun prepare_run(const UserConfig& user, Registry& registry, int world_size, Work work = Work::kTrain);

// Makes the run's folder and tries to write there, and where the final weights go.
void make_run_folder(PreparedRun& plan);

// After a run that failed before its first step: its folder belongs to nobody, so that the next run may use it.
void leave_unused_folder(const PreparedRun& plan);

}  // namespace ddhost
