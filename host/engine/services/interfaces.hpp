// SPDX-License-Identifier: Apache-2.0
//
// engine/services/interfaces.hpp: the tables that plugins get from the host. They are the same for all ranks; what differs is
// `h`, which points at a PluginSeat.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "ddh/ddh.h"
#include "engine/services/clock.hpp"
#include "engine/services/comm.hpp"
#include "engine/services/device.hpp"
#include "engine/services/memory.hpp"
#include "engine/services/staging.hpp"
#include "engine/services/step.hpp"
#include "engine/services/windows.hpp"
#include "engine/weights/param_init.hpp"
#include "launch/launch.hpp"

namespace spdlog {
class logger;
}

namespace ddhost {

// What the services of one rank stand on. Members appear in this order as the rank starts; a service that is asked for
// too early answers DDH_FAILED_PRECONDITION.
struct RankServices {
  RankServices(const RankSeat& rank_seat, Config rank_config, std::shared_ptr<spdlog::logger> logger)
      : seat(rank_seat), config(std::move(rank_config)), log(std::move(logger)) {}

  const RankSeat& seat;
  Config config;  // this rank's copy: agree writes into it
  std::shared_ptr<spdlog::logger> log;
  std::unique_ptr<Device> device;
  Memory memory;
  std::unique_ptr<Staging> staging;
  Clock clock;
  std::unique_ptr<Comm> comm;
  std::unique_ptr<Windows> windows;
  std::unique_ptr<ParamInit> params;
  std::unique_ptr<Step> step;
  ddh_group* model_group = nullptr;  // owned by the transport
};

// What `h` points at: the rank, and which plugin is calling. Has a stable address while its plugin lives.
class PluginSeat {
 public:
  // `options_section`: where its options stand; empty: the section of its kind.
  PluginSeat(RankServices& rank_services, std::string plugin_name, const std::string& options_section = "");
  PluginSeat(const PluginSeat&) = delete;
  PluginSeat& operator=(const PluginSeat&) = delete;

  [[nodiscard]] const ddh_host& host() const { return host_; }
  RankServices& services;
  const std::string name;     // "strategy:zero1": in front of log lines, prefix of kv keys
  const std::string kind;     // "strategy"
  const std::string section;  // "strategy": of its options
  const bool is_model;

  // Refuses a key that is neither an option of the plugin's own nor promised in ddh/service/config.h. [any]
  void require_readable(const char* key) const;

  // A copy of `text` that lives as long as the seat: what a plugin was given stays valid. [any]
  const char* keep(const std::string& text);

 private:
  std::mutex mutex_;
  std::set<std::string> kept_;  // a set: elements stay in place
  ddh_host host_;
};

// The table for an interface id, or nullptr. Needs no rank.
const void* host_interface(const char* id);

namespace detail {

inline PluginSeat& seat_of(void* h) { return *static_cast<PluginSeat*>(h); }
inline RankServices& services_of(void* h) { return seat_of(h).services; }

template <class T>
T& required(const std::unique_ptr<T>& service, const char* name) {
  if (service == nullptr) {
    ddh::fail(DDH_FAILED_PRECONDITION, name, " is not there yet; use it from attach or materialize on, not in create");
  }
  return *service;
}

// A plugin's arguments as this host's struct; refuses NULL, what is too short, and what this host does not know.
template <class T>
T checked(const T* args) {
  return ddh::copy_of(args);
}

// The same of the ranges of a shard or of a reduction, which are frozen: only their reserved field is left to check.
void check_ranges(const ddh_range* ranges, uint32_t n_ranges);

extern const ddh_config_api kConfigTable;
extern const ddh_comm_api kCommTable;
extern const ddh_window_api kWindowTable;
extern const ddh_stream_api kStreamTable;
extern const ddh_copy_api kCopyTable;
extern const ddh_flatops_api kFlatopsTable;

}  // namespace detail
}  // namespace ddhost
