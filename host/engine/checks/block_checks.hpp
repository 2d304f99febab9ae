// SPDX-License-Identifier: Apache-2.0
//
// engine/checks/block_checks.hpp: the blocks of gradients that a strategy asks for after a unit's backward (DDH_GRAD_LATER),
// checked before the model writes them: each block of the grid of each such parameter, once.
#pragma once

#include <vector>

#include "engine/calls/plugin_caller.hpp"

namespace ddhost {

class BlockChecks {
 public:
  // Of one use: the parameters that its view, which has passed ViewCheck, shows as DDH_GRAD_LATER. `model` and `strategy`
  // outlive the object.
  BlockChecks(const ddh_model_desc& model, const PluginCaller& strategy, const UnitName& unit,
              const ddh_unit_view& view);

  [[nodiscard]] bool has_none() const { return params_.empty(); }
  // A block that next_block gave. Throws ddh::Error that names plugin, call, unit and parameter.
  void take(const ddh_grad_block& block);
  // After the last one.
  void require_all() const;

 private:
  struct Param {
    const ddh_param_desc* desc;
    int32_t index;
    std::vector<bool> given;  // per block
  };
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    strategy_.blame(PluginCall::kNextBlock, unit_, parts...);
  }

  const PluginCaller& strategy_;
  const UnitName unit_;
  std::vector<Param> params_;
};

}  // namespace ddhost
