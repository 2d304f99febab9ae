// SPDX-License-Identifier: Apache-2.0
//
// engine/calls/instance.cpp: creates an instance, looks up its tables, destroys it.
#include "engine/calls/instance.hpp"

#include <cstring>
#include <utility>

#include "ddh/sdk/plugin.hpp"
#include "engine/calls/required_slots.hpp"

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
                "', which this host lacks; update ddhost");
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

}  // namespace ddhost
