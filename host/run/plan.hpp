// SPDX-License-Identifier: Apache-2.0
//
// run/plan.hpp: what is decided before the ranks start. Every rank reads the same plan.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "plugin/library.hpp"

namespace ddhost {

struct RunPlan {
  Config config;  // complete; a rank that writes into it (ddh.config agree) keeps its own copy
  Plugin strategy, model, comm, device, schedule;
  std::vector<Plugin> monitors;  // of monitor.plugins; rank 0 uses them
  // In the order of train.optimizers: ddh_program_desc.optimizer is an index.
  struct Optimizer {
    std::string section;  // of its options: "optimizer", "optimizer_kg"
    Plugin plugin;
  };
  std::vector<Optimizer> optimizers;
  int world_size = 1;
  int ranks_per_node = 0;          // 0 = all on one node
  bool ranks_are_threads = false;  // else one process each
  std::filesystem::path run_dir;   // absolute, exists, writable
};

}  // namespace ddhost
