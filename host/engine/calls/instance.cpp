// SPDX-License-Identifier: Apache-2.0
//
// engine/calls/instance.cpp: create, look up, destroy.
#include "engine/calls/instance.hpp"

#include <cstring>
#include <utility>

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
  // Not noexcept on this side, so that a create that throws in spite of the rules is caught.
  using Create = ddh_rc (*)(const ddh_create*, ddh_inst**, ddh_err*);
  const Create create = plugin.module->create;
  const ddh_create args{sizeof(ddh_create), 0, &host, plugin.desc->id, section.c_str()};
  ddh_inst* made = nullptr;
  try {
    caller_(PluginCall::kCreate, create, &args, &made);
  } catch (const ddh::Error&) {
    throw;
  } catch (const std::exception& error) {
    caller_.blame(PluginCall::kCreate, {}, "threw an exception (", error.what(), ")");
  } catch (...) {
    caller_.blame(PluginCall::kCreate, {}, "threw an exception of an unknown type");
  }
  if (made == nullptr) caller_.blame(PluginCall::kCreate, {}, "made no instance");
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
    ddh::fail(DDH_FAILED_PRECONDITION, name_of(plugin_), " gives a table ", id, " of ", size, " bytes, at least ",
              min_size, " are needed; rebuild '", plugin_.file.string(), "' with this host's plugin_api");
  uint32_t reserved = 0;  // and then a reserved field
  if (size >= 2 * sizeof size) std::memcpy(&reserved, static_cast<const char*>(table) + sizeof size, sizeof reserved);
  if (reserved != 0)
    ddh::fail(DDH_UNIMPLEMENTED, name_of(plugin_), " gives a table ", id, " whose reserved0 is ", reserved,
              "; it must be 0: fix '", plugin_.file.string(), "'");
  return table;
}

const void* Instance::required(const char* id, uint32_t min_size) const {
  const void* table = raw(id, min_size);
  if (table == nullptr)
    ddh::fail(DDH_FAILED_PRECONDITION, name_of(plugin_), " lacks the interface ", id, "; mend '", plugin_.file.string(),
              "'");
  return table;
}

}  // namespace ddhost
