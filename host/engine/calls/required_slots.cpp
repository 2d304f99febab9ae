// SPDX-License-Identifier: Apache-2.0
#include "engine/calls/required_slots.hpp"

#include <cstddef>
#include <cstring>

#include "ddh/ddh.h"

namespace ddhost {
namespace {

struct Slot {
  std::string_view id;
  const char* name;
  size_t offset;
};

#define DDHOST_SLOT(ID, TABLE, SLOT) \
  Slot { ID, #SLOT, offsetof(TABLE, SLOT) }
#define DDHOST_STRATEGY(SLOT) DDHOST_SLOT(DDH_STRATEGY_IFACE, ddh_strategy_api, SLOT)
#define DDHOST_MODEL(SLOT) DDHOST_SLOT(DDH_MODEL_IFACE, ddh_model_api, SLOT)
#define DDHOST_SAMPLER(SLOT) DDHOST_SLOT(DDH_SAMPLER_IFACE, ddh_sampler_api, SLOT)
#define DDHOST_OPTIMIZER(SLOT) DDHOST_SLOT(DDH_OPTIMIZER_IFACE, ddh_optimizer_api, SLOT)
#define DDHOST_COMM(SLOT) DDHOST_SLOT(DDH_COMM_BACKEND_IFACE, ddh_comm_backend_api, SLOT)
#define DDHOST_SCHEDULE(SLOT) DDHOST_SLOT(DDH_SCHEDULE_IFACE, ddh_schedule_api, SLOT)
#define DDHOST_MONITOR(SLOT) DDHOST_SLOT(DDH_MONITOR_IFACE, ddh_monitor_api, SLOT)
#define DDHOST_DEVICE(SLOT) DDHOST_SLOT(DDH_DEVICE_IFACE, ddh_device_api, SLOT)

constexpr Slot kRequired[] = {
    DDHOST_STRATEGY(attach),       DDHOST_STRATEGY(plan),    DDHOST_STRATEGY(materialize),
    DDHOST_STRATEGY(step_begin),   DDHOST_STRATEGY(acquire), DDHOST_STRATEGY(release),
    DDHOST_STRATEGY(grads_ready),  DDHOST_STRATEGY(step),    DDHOST_STRATEGY(state),
    DDHOST_STRATEGY(state_commit), DDHOST_MODEL(describe),   DDHOST_MODEL(batch_create),
    DDHOST_MODEL(batch_destroy),   DDHOST_MODEL(forward),    DDHOST_MODEL(backward),
    DDHOST_MODEL(metrics),         DDHOST_MODEL(discard),    DDHOST_SAMPLER(begin),
    DDHOST_SAMPLER(next),          DDHOST_SAMPLER(text),     DDHOST_OPTIMIZER(attach),
    DDHOST_OPTIMIZER(slot_count),  DDHOST_OPTIMIZER(slot),   DDHOST_OPTIMIZER(needs),
    DDHOST_OPTIMIZER(update),      DDHOST_COMM(init),        DDHOST_COMM(world),
    DDHOST_COMM(group_create),     DDHOST_COMM(group_info),  DDHOST_COMM(all_gather),
    DDHOST_COMM(broadcast),        DDHOST_COMM(barrier),     DDHOST_COMM(abort),
    DDHOST_COMM(finalize),         DDHOST_DEVICE(count),     DDHOST_DEVICE(open),
    DDHOST_DEVICE(info),           DDHOST_DEVICE(close),     DDHOST_DEVICE(allocate),
    DDHOST_DEVICE(release),        DDHOST_SCHEDULE(attach),  DDHOST_SCHEDULE(lr),
    DDHOST_MONITOR(begin),         DDHOST_MONITOR(row),      DDHOST_MONITOR(end),
};

}  // namespace

const char* missing_slot(std::string_view id, const void* table) {
  for (const Slot& slot : kRequired) {
    if (slot.id != id) continue;
    void* function = nullptr;
    std::memcpy(&function, static_cast<const char*>(table) + slot.offset, sizeof function);
    if (function == nullptr) return slot.name;
  }
  return nullptr;
}

}  // namespace ddhost
