// SPDX-License-Identifier: Apache-2.0
//
// cli/plan/memory_changes.hpp: changes of a training that does not fit into memory, with which it does (--fit, and the end of
// the error). They are planned, as by `ddhost plan`; no rank is started.
#pragma once

#include <functional>
#include <optional>
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

// What the user asked for. What it refers to lives until the ranks have ended, in each process.
struct AskedRun {
  const CommandLine& line;
  Registry& registry;
  const RunPlace& place;
};

// For a training that was refused for `shortage`: its changes, or if it has none, those that a loader finds.
TriedChanges changes_that_fit(const AskedRun& run, const Shortage& shortage);

// Called in rank 0. Returns `shortage` with the changes that a child of this process finds; without them if the child fails.
// Then a loader seeks them.
Shortage with_changes(const AskedRun& run, Shortage shortage);

// Called in the loader. Plans a training of many ranks before they start. Error: LacksMemory with changes: it does not fit.
void require_fit_of_many_ranks(const AskedRun& asked, const PreparedRun& run);

// The changes as Shortage::changes has them: [{"words": [["strategy.plugin", "zero3"]], "same_bits": true}]. Error: the run
// can't be planned.
std::string sought_changes(const AskedRun& run, const Shortage& shortage, LoaderRecord& record, RunPlanner& planner);
// What `say` returns in a child of this process; nullopt: it failed, or took longer than 10 s.
std::optional<std::string> planned_in_child(const std::function<std::string(LoaderRecord&, RunPlanner&)>& say);

}  // namespace ddhost
