// SPDX-License-Identifier: Apache-2.0
//
// engine/checks/step_checks.hpp: the checks after a strategy's materialize: its state holds each parameter once, with its
// initial values; and after its step: it called decide, it updated all elements that the rank holds, and the updated
// values are finite.
#pragma once

#include <vector>

#include "engine/calls/instance.hpp"
#include "engine/services/initial_values.hpp"
#include "engine/services/optim/step_coordinator.hpp"
#include "engine/settings/run_programs.hpp"
#include "engine/state/state_entries.hpp"

namespace ddhost {

// Checks a strategy's view before the model uses it, with a few comparisons per parameter at every acquire.
class ViewCheck {
 public:
  // `model` outlives the object. `compute_dtype`: of the run.
  ViewCheck(const ddh_model_desc& model, int32_t compute_dtype);

  // Throws ddh::Error that names plugin, call, unit and parameter. `trains`: the program's mask per parameter; empty:
  // none.
  void check(const PluginCaller& strategy, const ddh_unit_use& use, const std::vector<uint8_t>& trains,
             const ddh_unit_view& view) const;

 private:
  struct Expected {
    int32_t param, dtype;
    uint64_t numel, grad_block;
  };
  const ddh_model_desc& model_;
  std::vector<std::vector<Expected>> units_;  // per unit, in the order of its view
};

class StepChecks {
 public:
  // Called after materialize: reads this rank's state, and checks that the ranks together hold each parameter once, and
  // that the state begins with the initial values. The other arguments outlive the object. [collective]
  StepChecks(const StateSource& source, const StepCoordinator& step, const InitialValues& initial, const Comm& comm,
             Staging& staging);

  // Called when the strategy's step has returned.
  void after_step();
  // For errors about weights that are not finite: the cause, and what to do.
  [[nodiscard]] std::string blame_for_nonfinite() const;

 private:
  void check_held_once(const std::vector<ddh_state_entry>& entries, const Comm& comm) const;
  // The first and last block of each entry in memory: a strategy that forgets ddh.params, or the files of
  // train.init_from, has other values in all of them.
  void check_initial(const std::vector<ddh_state_entry>& entries, const InitialValues& initial) const;
  void check_finite(const char* when) const;

  // The masters are checked after this many updates, and whenever a gradient is not finite.
  static constexpr int kFirstUpdates = 2;

  const StateSource source_;
  const StepCoordinator& step_;
  Staging& staging_;
  Cover held_;
  int updates_ = 0;
  bool applied_nonfinite_ = false;  // by train.skip_nonfinite=false
};

}  // namespace ddhost
