// SPDX-License-Identifier: Apache-2.0
//
// launch/cluster/placement.hpp: whether another program started this process as one of several tasks, which may be on other
// hosts, and which of them it is. Each task is an agent: a launcher that starts its part of the run's ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"

namespace ddhost {

struct Placement {
  std::string launcher;  // its name, for messages
  int task = 0, n_tasks = 1;
  bool is_one_host = false;  // all tasks are here
  std::string job;           // the same for all tasks of a run, and for no other run of this user
  std::string toward;        // a host that the tasks can reach, or ""
};

// `launchers`: the entries "launcher" of the tables of other programs' names (docs/cluster.md). The first that applies
// wins: the innermost launcher comes first. `from`: "auto", "none", or a launcher's name. nullopt: this process is the whole
// run. Error: variables that contradict one another, or an entry that refuses.
std::optional<Placement> find_placement(const std::vector<Json>& launchers, const std::string& from);

}  // namespace ddhost
