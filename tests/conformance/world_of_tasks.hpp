// SPDX-License-Identifier: Apache-2.0
//
// tests/conformance/world_of_tasks.hpp: a world whose ranks are tasks of another launcher, one each. MPI needs such tasks and
// starts once in each, and ranks on several hosts are such tasks. So a task runs one of the worlds of its size:
// DDHOST_NTH_WORLD says which, from 0 on. Others are left out. mpi.sh and hosts.sh start tasks for each.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include "config/launchers.hpp"
#include "launch/launch.hpp"

namespace ddhost::test {

constexpr int kLeftOut = -1;  // exit code of a world that did not run

inline bool are_tasks() { return std::getenv("DDHOST_NTH_WORLD") != nullptr; }

struct Tasks {
  bool is_this_world;
  std::unique_ptr<Cluster> others;  // null: there are none
};
inline Tasks join_tasks(int world) {
  static int nth = 0;
  const std::optional<Placement> place = find_placement(launchers({}), "auto");
  const bool is_of_size = (place ? place->n_tasks : 1) == world;
  if (!is_of_size || nth++ != std::atoi(std::getenv("DDHOST_NTH_WORLD"))) return {false, nullptr};
  if (!place || place->task == 0) std::fprintf(stderr, "world %d of %d ranks\n", nth - 1, world);
  ClusterSettings settings;
  settings.timeout = std::chrono::seconds(60);
  return {true, place ? Cluster::join(*place, settings) : nullptr};
}

inline bool is_task(int number) {
  const std::optional<Placement> place = find_placement(launchers({}), "auto");
  return (place ? place->task : 0) == number;
}

// The head alone knows why a world has failed.
inline bool is_told_why() { return !are_tasks() || is_task(0); }

}  // namespace ddhost::test
