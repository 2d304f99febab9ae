// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/step_checks.hpp: what must hold after a strategy's step: it decided, it updated all that the rank holds, and the
// optimizer left numbers behind.
#pragma once

#include "engine/services/step_coordinator.hpp"
#include "engine/weights/state_entries.hpp"

namespace ddhost {

class StepChecks {
 public:
  // After materialize: reads what this rank holds, and that the ranks together hold each parameter once. The others outlive
  // the object. [collective]
  StepChecks(const StateSource& source, const StepCoordinator& step, const Comm& comm, Staging& staging);

  // The strategy's step has returned.
  void after_step();
  // For sentences about weights that are not finite: who made them so, and what to do.
  [[nodiscard]] std::string blame_for_nonfinite() const;

 private:
  void check_held_once(const std::vector<ddh_state_entry>& entries, const Comm& comm) const;
  void check_finite(const char* when) const;

  // The masters are looked at after so many updates, and whenever a gradient is not finite.
  static constexpr int kFirstUpdates = 2;

  const StateSource source_;
  const StepCoordinator& step_;
  Staging& staging_;
  Cover held_;
  int updates_ = 0;
  bool applied_nonfinite_ = false;  // by train.skip_nonfinite=false
};

}  // namespace ddhost
