// SPDX-License-Identifier: Apache-2.0
//
// engine/calls/instance.cpp: creates an instance, looks up its tables, destroys it.
#include "engine/calls/instance.hpp"

#include <cstddef>
#include <cstring>
#include <utility>

#include "ddh/ddh.h"
#include "ddh/sdk/plugin.hpp"

namespace ddhost {

namespace {

std::string name_of(const Plugin& plugin) { return kind_name(plugin.desc->kind) + " '" + plugin.id() + "'"; }

}  // namespace

Instance::Instance(const Plugin& plugin, const ddh_host& host, const std::string& section, RankRecord* record)
    : plugin_(plugin),
      name_(std::make_unique<const std::string>(name_of(plugin))),
      record_(record),
      caller_(name_->c_str(), record) {
  for (const char* const* need = plugin.desc->needs; need != nullptr && *need != nullptr; ++need)
    if (host.get_interface(host.h, *need) == nullptr)
      ddh::fail(DDH_FAILED_PRECONDITION, *name_, " needs the host interface '", *need,
                "', which this host lacks or does not give to plugins of this kind; update ddhost, or fix the plugin");
  const ddh_create args{sizeof(ddh_create), 0, &host, plugin.desc->id, section.c_str()};
  ddh_inst* made = nullptr;
  caller_(PluginCall::kCreate, plugin.module->create, &args, &made);
  if (made == nullptr) caller_.blame(PluginCall::kCreate, {}, "created no instance");
  inst_ = made;
}

Instance::Instance(Instance&& other) noexcept { *this = std::move(other); }

Instance& Instance::operator=(Instance&& other) noexcept {
  std::swap(plugin_, other.plugin_);
  std::swap(name_, other.name_);
  std::swap(record_, other.record_);
  std::swap(caller_, other.caller_);
  std::swap(inst_, other.inst_);
  return *this;
}

Instance::~Instance() {
  if (inst_ == nullptr) return;
  const PluginCaller::Entered entered = caller_.enter(PluginCall::kDestroy);
  plugin_.module->destroy(inst_);
}

const void* Instance::raw(const char* id, uint32_t min_size) const {
  const void* table = nullptr;
  {
    const PluginCaller::Entered entered = caller_.enter(PluginCall::kGetInterface);
    table = plugin_.module->get_interface(inst_, id);
  }
  if (table == nullptr) return nullptr;
  uint32_t size = 0;  // every table begins with its struct_size
  std::memcpy(&size, table, sizeof size);
  if (size < min_size)
    ddh::fail(DDH_FAILED_PRECONDITION, name_of(plugin_), " gives a table ", id, " of ", size, " bytes, but at least ",
              min_size, " are needed; rebuild '", plugin_.file.string(), "' with this host's plugin_api");
  uint32_t reserved = 0;  // and then a reserved field
  if (size >= 2 * sizeof size) std::memcpy(&reserved, static_cast<const char*>(table) + sizeof size, sizeof reserved);
  if (reserved != 0)
    ddh::fail(DDH_UNIMPLEMENTED, name_of(plugin_), " gives a table ", id, " whose reserved0 is ", reserved,
              "; it must be 0: fix '", plugin_.file.string(), "'");
  if (const char* const missing = missing_slot(id, table))
    ddh::fail(DDH_FAILED_PRECONDITION, name_of(plugin_), " gives a table ", id, " whose function ", missing,
              " is NULL; fix '", plugin_.file.string(), "'");
  return table;
}

const void* Instance::required(const char* id, uint32_t min_size) const {
  const void* table = raw(id, min_size);
  if (table == nullptr)
    ddh::fail(DDH_FAILED_PRECONDITION, name_of(plugin_), " lacks the interface ", id, "; fix '", plugin_.file.string(),
              "'");
  return table;
}

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
#define DDHOST_FORMAT(SLOT) DDHOST_SLOT(DDH_FORMAT_IFACE, ddh_format_api, SLOT)
#define DDHOST_CODEC(SLOT) DDHOST_SLOT(DDH_CODEC_IFACE, ddh_codec_api, SLOT)
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
    DDHOST_FORMAT(matches),        DDHOST_FORMAT(open),      DDHOST_FORMAT(tensor),
    DDHOST_FORMAT(read),           DDHOST_CODEC(attach),     DDHOST_CODEC(plan),
    DDHOST_CODEC(rounds),          DDHOST_CODEC(max_rounds), DDHOST_CODEC(message_numel),
    DDHOST_CODEC(encode),          DDHOST_CODEC(decode),
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
