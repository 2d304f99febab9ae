// SPDX-License-Identifier: Apache-2.0
//
// engine/services/check_optim.hpp: what an optimizer says of its slots, and the shards that a strategy gives it,
// before either is relied on.
#pragma once

#include "engine/calls/plugin_caller.hpp"
#include "engine/services/step_account.hpp"

namespace ddhost {

// Every slot has a name, a dtype and an extent that this host knows.
void check_slots(ddh_inst* optimizer, const ddh_optimizer_api& table, const PluginCaller& caller);

// The pointers of a shard that holds something. `slot_count`: over all instances.
void check_shard_pointers(const ddh_optim_shard& shard, uint32_t slot_count);

}  // namespace ddhost
