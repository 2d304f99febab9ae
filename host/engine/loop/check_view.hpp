// SPDX-License-Identifier: Apache-2.0
//
// engine/loop/check_view.hpp: checks a strategy's view before the model uses it, with a few comparisons per parameter
// at every acquire.
#pragma once

#include <vector>

#include "engine/calls/instance.hpp"
#include "engine/loop/run_programs.hpp"

namespace ddhost {

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
    uint64_t numel;
  };
  const ddh_model_desc& model_;
  std::vector<std::vector<Expected>> units_;  // per unit, in the order of its view
};

}  // namespace ddhost
