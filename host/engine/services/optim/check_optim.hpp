// SPDX-License-Identifier: Apache-2.0
//
// engine/services/optim/check_optim.hpp: checks an optimizer's slots, and the shards that a strategy passes to it.
#pragma once

#include "engine/calls/plugin_caller.hpp"
#include "engine/services/optim/step_account.hpp"

namespace ddhost {

// Checks that every slot has a name, and a dtype and an extent that this host knows.
void check_slots(ddh_inst* optimizer, const ddh_optimizer_api& table, const PluginCaller& caller);

// Checks the pointers of a shard that is not empty. `slot_count`: over all instances.
void check_shard_pointers(const ddh_optim_shard& shard, uint32_t slot_count);

}  // namespace ddhost
