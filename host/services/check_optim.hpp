// SPDX-License-Identifier: Apache-2.0
//
// services/check_optim.hpp: what an optimizer says of its slots, and the shards that a strategy gives it, before either is
// relied on.
#pragma once

#include "plugin/plugin_caller.hpp"
#include "services/step_account.hpp"

namespace ddhost {

// Every slot has a name, a dtype and an extent that this host knows.
void check_slots(ddh_inst* optimizer, const ddh_optimizer_api& table, const PluginCaller& caller);

// The pointers of a shard, and its ranges. `slot_count` and `slot_used(slot, param)`: of the optimizer.
void check_shard_pointers(const ddh_optim_shard& shard, uint32_t slot_count);
[[noreturn]] void fail_missing_slot(const ddh_model_desc& model, uint32_t slot, int32_t param);

template <class SlotUsed>
void check_shard(const ddh_optim_shard& shard, const ddh_model_desc& model, const StepAccount& account,
                 uint32_t slot_count, SlotUsed&& slot_used) {
  account.check_ranges(shard.ranges, shard.n_ranges);
  if (shard.n_ranges == 0) return;
  check_shard_pointers(shard, slot_count);
  for (uint32_t slot = 0; slot < slot_count; ++slot) {
    if (shard.slots[slot] != nullptr) continue;
    for (uint32_t r = 0; r < shard.n_ranges; ++r)
      if (shard.ranges[r].numel > 0 && slot_used(slot, shard.ranges[r].param))
        fail_missing_slot(model, slot, shard.ranges[r].param);
  }
}

}  // namespace ddhost
