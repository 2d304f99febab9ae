// SPDX-License-Identifier: Apache-2.0
//
// engine/checks/replicas.hpp: compares values that several ranks hold, after the steps that run.check_replicas asks
// for: entries of the strategy's state of shared scope with replica_count above 1, and the model's buffers. Between the steps
// of a strategy's rhythm its replicas may differ, so nothing is compared there. Ranks whose gradients were
// never summed, or whose memory was overwritten, differ here.
//
// Each block of 64 elements has a hash of its place and its bytes. The sum of these hashes over the ranks that hold one
// replica of a tensor does not depend on how the replica is divided. So each rank adds up its hashes with a factor for
// the replica; the factors of all replicas add up to 0, and so does the sum over all ranks if the replicas are equal.
// One number per rank is compared; which tensor differs is only asked if the sum is not 0.
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
  // The strategy has settled after this step, so that its replicas are equal again.
  void settled(int64_t step) { settled_ = step; }
  // Compares the replicas as they are after this step, unless that was done. Called before they are saved. [collective]
  void require_equal(int64_t step);

 private:
  [[nodiscard]] bool is_due(int64_t step) const;
  [[nodiscard]] bool is_comparable(int64_t step) const;

  const RankServices& services_;
  const StateSource source_;
  const bool is_on_;
  const int64_t every_;   // steps; 0: after 1, 2, 4, 8, ... comparable steps of this process
  int64_t times_ = 0;     // comparable steps of this process
  int64_t settled_ = -1;  // the step after which the strategy has settled
  int64_t checked_ = -1;  // the last step whose replicas were compared
};

}  // namespace ddhost
