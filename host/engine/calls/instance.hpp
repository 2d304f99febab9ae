// SPDX-License-Identifier: Apache-2.0
//
// engine/calls/instance.hpp: one instance of a plugin, for one rank.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/calls/plugin.hpp"
#include "engine/calls/plugin_caller.hpp"

namespace ddhost {

// The name of the first required function that is NULL in the table of `id`, whose minimum size has been checked.
// nullptr: none, or the interface is unknown.
const char* missing_slot(std::string_view id, const void* table);

class Instance {
 public:
  Instance() = default;
  // Calls the plugin's create; `host` must outlive the instance. Error: the plugin's message, prefixed with its name;
  // also if create throws, which it must not. `section`: the section of its options, "strategy". `record`: the rank's
  // record of calls, which outlives the instance.
  Instance(const Plugin& plugin, const ddh_host& host, const std::string& section, RankRecord* record = nullptr);
  Instance(Instance&& other) noexcept;
  Instance& operator=(Instance&& other) noexcept;
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;
  ~Instance();

  [[nodiscard]] ddh_inst* get() const { return inst_; }
  [[nodiscard]] const Plugin& plugin() const { return plugin_; }
  // For all calls into the instance, on the rank's main thread or on the data worker. Valid while this object lives.
  [[nodiscard]] const PluginCaller& caller() const { return caller_; }
  [[nodiscard]] PluginCaller caller_on(RankThread thread) const { return {name_->c_str(), record_, thread}; }
  template <class Function, class... Args>
  void call(PluginCall call, Function function, Args&&... args) const {
    caller_(call, function, inst_, std::forward<Args>(args)...);
  }

  // The table for an interface id; nullptr: absent. Error: it is shorter than `min_size`.
  template <class Table>
  [[nodiscard]] const Table* find(const char* id, uint32_t min_size) const {
    return static_cast<const Table*>(raw(id, min_size));
  }
  // The same, but a missing table is an Error.
  template <class Table>
  [[nodiscard]] const Table& require(const char* id, uint32_t min_size) const {
    return *static_cast<const Table*>(required(id, min_size));
  }

 private:
  [[nodiscard]] const void* raw(const char* id, uint32_t min_size) const;
  [[nodiscard]] const void* required(const char* id, uint32_t min_size) const;

  Plugin plugin_;
  std::unique_ptr<const std::string> name_;  // "strategy 'zero1'", where callers find it
  RankRecord* record_ = nullptr;
  PluginCaller caller_;
  ddh_inst* inst_ = nullptr;
};

}  // namespace ddhost
