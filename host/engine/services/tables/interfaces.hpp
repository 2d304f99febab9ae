// SPDX-License-Identifier: Apache-2.0
//
// engine/services/tables/interfaces.hpp: the tables that plugins get from the host. They are the same for all ranks;
// only `h` differs, which points to a PluginSeat: the plugin, its rank's services, and the handles that plugins own.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "ddh/ddh.h"
#include "engine/calls/misuse.hpp"
#include "engine/services/comm/comm.hpp"
#include "engine/services/device.hpp"
#include "engine/services/initial_values.hpp"
#include "engine/services/memory/memory.hpp"
#include "engine/services/memory/staging.hpp"
#include "engine/services/memory/windows.hpp"
#include "engine/services/optim/step_coordinator.hpp"
#include "engine/services/rank_seat.hpp"
#include "engine/services/run_codec.hpp"
#include "engine/services/run_config.hpp"

namespace spdlog {
class logger;
}

namespace ddhost {

class OwnOptims;

// The windows, exchanges, streams, events and graphs that the plugins of a rank own. A plugin destroys each of its own once,
// before it is destroyed itself.
class OwnedHandles {
 public:
  // `misuse` outlives this object.
  explicit OwnedHandles(Misuse& misuse) : misuse_(misuse) {}

  // `owner`: "strategy 'zero1'"; `kind`: "window"; `name`: from the plugin, may be null.
  void add(const void* handle, const std::string& owner, const char* kind, const char* name);
  // Whether the plugin has such a handle, which it now destroys. If not, it is noted.
  [[nodiscard]] bool take(const void* handle, const std::string& owner, const char* kind);
  // Notes those that are left. Called when the plugins are destroyed.
  void note_leaks();

 private:
  struct Handle {
    std::string owner, kind, name;
  };
  Misuse& misuse_;
  std::mutex mutex_;
  std::multimap<const void*, Handle> handles_;  // the streams and events of the CPU are all the same pointer
};

// The data of one rank's services. Members are set in this order when the rank starts. A service that is called too
// early returns DDH_FAILED_PRECONDITION.
struct RankServices {
  // `rank_config`: this rank's own copy.
  RankServices(const RankSeat& rank_seat, std::unique_ptr<RunConfig> rank_config,
               std::shared_ptr<spdlog::logger> logger)
      : seat(rank_seat),
        own_config(std::move(rank_config)),
        config(*own_config),
        log(std::move(logger)),
        handles(rank_seat.record.misuse()) {
    memory.report_to(rank_seat.record.misuse());
  }

  const RankSeat& seat;
  const std::unique_ptr<RunConfig> own_config;  // agree writes into it
  RunConfig& config;
  std::shared_ptr<spdlog::logger> log;
  std::unique_ptr<Device> device;
  OwnedHandles handles;
  Memory memory;
  std::unique_ptr<Staging> staging;
  Clock clock;
  std::unique_ptr<Comm> comm;
  std::unique_ptr<Windows> windows;
  std::unique_ptr<InitialValues> params;
  std::unique_ptr<StepCoordinator> step;
  std::unique_ptr<RunCodec> codec;        // null: the run has none
  ddh_group* model_group = nullptr;       // owned by the transport
  std::shared_ptr<OwnOptims> own_optims;  // of the strategy
};

// The object that `h` points to: the rank and the calling plugin. Its address is stable while the plugin lives.
class PluginSeat {
 public:
  // `options_section`: the section of its options; empty: the section of its kind. `plugin_desc`: says which services it
  // lists; null: it gets all. `config_of_its_own`: it reads this one instead of the rank's.
  PluginSeat(RankServices& rank_services, std::string plugin_name, const std::string& options_section = "",
             const ddh_desc* plugin_desc = nullptr, std::unique_ptr<const RunConfig> config_of_its_own = nullptr);
  PluginSeat(const PluginSeat&) = delete;
  PluginSeat& operator=(const PluginSeat&) = delete;

  [[nodiscard]] const ddh_host& host() const { return host_; }
  RankServices& services;
  const std::string name;     // "strategy:zero1": prefix of log lines and kv keys
  const std::string shown;    // "strategy 'zero1'", for sentences
  const std::string kind;     // "strategy"
  const std::string section;  // "strategy": of its options
  const bool is_model;

  [[nodiscard]] const RunConfig& config() const { return own_config_ != nullptr ? *own_config_ : services.config; }
  // The table of a service, if the plugin's kind gets it and its descriptor lists it. Else nullptr, and the first time a line
  // in the log. [any]
  const void* service(const char* id);

  // Refuses a key that is neither an option of the plugin's own nor promised in ddh/service/config.h. [any]
  void require_readable(const char* key) const;
  // What the plugin knows of the run: the keys that it has read, and whether it has asked for the ranks (ddh.comm, ddh.kv).
  // [any]
  void note_read(const char* key);
  void note_ranks() { has_asked_for_ranks_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] std::set<std::string> read_keys() const;
  [[nodiscard]] bool has_asked_for_ranks() const { return has_asked_for_ranks_.load(std::memory_order_relaxed); }

  // A copy of `text` that lives as long as the seat, so pointers given to a plugin stay valid. [any]
  const char* keep(const std::string& text);

 private:
  mutable std::mutex mutex_;
  std::set<std::string> kept_;     // a set: elements stay in place
  std::set<std::string> refused_;  // services
  std::set<std::string> read_;     // keys
  std::atomic<bool> has_asked_for_ranks_{false};
  const ddh_desc* const desc_;
  ddh_host host_;
  const std::unique_ptr<const RunConfig> own_config_;
};

// The table for an interface id, or nullptr. Needs no rank.
const void* host_interface(const char* id);

}  // namespace ddhost
