// SPDX-License-Identifier: Apache-2.0
//
// plugin/instance.cpp: create, look up, destroy.
#include "plugin/instance.hpp"

#include <cstring>
#include <utility>

#include "ddh/sdk/plugin.hpp"

namespace ddhost {
namespace {

std::string name_of(const Plugin& plugin) { return kind_name(plugin.desc->kind) + " '" + plugin.id() + "'"; }

}  // namespace

Instance::Instance(const Plugin& plugin, const ddh_host& host, const std::string& section) : plugin_(plugin) {
  // Not noexcept on this side, so that a create that throws in spite of the rules is caught.
  using Create = ddh_rc (*)(const ddh_create*, ddh_inst**, ddh_err*);
  const Create create = plugin.module->create;
  const ddh_create args{sizeof(ddh_create), 0, &host, plugin.desc->id, section.c_str()};
  ddh::ErrorBuffer err;
  ddh_rc rc = DDH_OK;
  try {
    rc = create(&args, &inst_, err.get());
  } catch (const std::exception& error) {
    ddh::fail(DDH_INTERNAL, name_of(plugin), " threw from create (", error.what(), "); mend '", plugin.file.string(),
              "'");
  } catch (...) {
    ddh::fail(DDH_INTERNAL, name_of(plugin), " threw from create; mend '", plugin.file.string(), "'");
  }
  if (rc != DDH_OK) {
    inst_ = nullptr;
    ddh::fail(rc, name_of(plugin), ": ",
              err.text()[0] != '\0' ? std::string(err.text()) : ddh::str("create failed with code ", rc));
  }
  if (inst_ == nullptr)
    ddh::fail(DDH_INTERNAL, name_of(plugin), " made no instance; mend '", plugin.file.string(), "'");
}

Instance::Instance(Instance&& other) noexcept
    : plugin_(std::move(other.plugin_)), inst_(std::exchange(other.inst_, nullptr)) {}

Instance& Instance::operator=(Instance&& other) noexcept {
  std::swap(plugin_, other.plugin_);
  std::swap(inst_, other.inst_);
  return *this;
}

Instance::~Instance() {
  if (inst_ != nullptr) plugin_.module->destroy(inst_);
}

const void* Instance::raw(const char* id, uint32_t min_size) const {
  const void* table = plugin_.module->get_interface(inst_, id);
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
