// SPDX-License-Identifier: Apache-2.0
//
// engine/checks/replica_checks.hpp: decides after which steps the ranks compare what several of them hold
// (run.check_replicas).
#pragma once

#include "engine/services/tables/interfaces.hpp"
#include "engine/state/state_entries.hpp"

namespace ddhost {

class ReplicaChecks {
 public:
  // `services` outlives the object.
  ReplicaChecks(const RankServices& services, const StateSource& source);

  // Called after each step, when all that changes state in it is done. `ends`: it is the last one of the run. [collective]
  void step_done(int64_t step, bool ends);
  // Compares the replicas as they are after this step, unless that was done. Called before they are saved. [collective]
  void require_equal(int64_t step);

 private:
  [[nodiscard]] bool is_due(int64_t step) const;

  const RankServices& services_;
  const StateSource source_;
  const bool is_on_;
  const int64_t every_;   // steps; 0: after 1, 2, 4, 8, ... steps of this process
  int64_t steps_ = 0;     // of this process
  int64_t checked_ = -1;  // the last step whose replicas were compared
};

}  // namespace ddhost
