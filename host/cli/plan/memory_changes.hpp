// SPDX-License-Identifier: Apache-2.0
//
// cli/plan/memory_changes.hpp: changes of a training that does not fit into memory, with which it does (--fit, and the end of
// the error). They are planned, as by `ddhost plan`; no rank is started.
#pragma once

#include <string>
#include <vector>

#include "cli/plan/planned_run.hpp"
#include "cli/words/command_line.hpp"
#include "launch/launch.hpp"
#include "plan/prepare.hpp"
#include "plugin/registry.hpp"

namespace ddhost {

// A change of a training that takes less memory.
struct MemoryChange {
  std::vector<Override> overrides;
  bool same_bits;  // as the run without it
  // "strategy.plugin=zero3"
  [[nodiscard]] std::string text() const;
};
struct TriedChanges {
  std::vector<MemoryChange> changes;  // the nearest with which it fits, at most three, those with the same bits first
  Outcome end;                        // of the search; not 0: it failed, or a signal ended it
};

// What the user asked for.
struct AskedRun {
  const CommandLine& line;
  Registry& registry;
  const RunPlace& place;
};

// For a training that was refused for `shortage`: its changes, or if it has none, those that a loader finds.
TriedChanges changes_that_fit(const AskedRun& run, const Shortage& shortage);

// In a process that has loaded the plugins of the run: `shortage` with its changes, which are sought in a child of this
// process; without them where that fails.
Shortage with_changes(const AskedRun& run, Shortage shortage);

// In the loader, of a training with many ranks for each core: they take long to start, so its plan is compared with the memory
// of this host before. Error: LacksMemory, with changes.
void require_fit_of_many_ranks(const AskedRun& asked, const PreparedRun& run);

}  // namespace ddhost
