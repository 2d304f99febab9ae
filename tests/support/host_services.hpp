// SPDX-License-Identifier: Apache-2.0
//
// tests/support/host_services.hpp: the host's services for one rank on the CPU, behind the tables that a plugin gets. The
// transport is one of a world of one, which touches what it is given at once.
#pragma once

#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include <cstring>
#include <memory>
#include <string>

#include "config/config.hpp"
#include "engine/calls/instance.hpp"
#include "engine/services/interfaces.hpp"
#include "launch/kv.hpp"
#include "launch/progress.hpp"
#include "support/cpu_device.hpp"

namespace ddhost::test {

inline ddh_comm_backend_api transport_of_one() {
  ddh_comm_backend_api t{};
  t.struct_size = sizeof t;
  t.world = [](ddh_inst* i) noexcept { return reinterpret_cast<ddh_group*>(i); };
  t.group_info = [](ddh_inst*, ddh_group*, int32_t* rank, int32_t* size, uint32_t* caps, ddh_err*) noexcept -> ddh_rc {
    *rank = 0, *size = 1, *caps = DDH_COMM_ORDERED_SUM;
    return DDH_OK;
  };
  t.all_reduce = [](ddh_inst*, const ddh_coll* c, ddh_err*) noexcept -> ddh_rc {
    if (c->send != c->recv) std::memmove(c->recv, c->send, c->count * ddh_dtype_bytes(c->dtype));
    return DDH_OK;
  };
  t.all_gather = [](ddh_inst*, const ddh_coll* c, ddh_err*) noexcept -> ddh_rc {
    const uint64_t numel = c->counts == nullptr ? c->count : c->counts[0];
    if (c->send != c->recv) std::memmove(c->recv, c->send, numel * ddh_dtype_bytes(c->dtype));
    return DDH_OK;
  };
  t.reduce_scatter = t.all_gather;
  t.broadcast = [](ddh_inst*, const ddh_coll*, ddh_err*) noexcept -> ddh_rc { return DDH_OK; };
  t.barrier = [](ddh_inst*, ddh_group*, ddh_err*) noexcept -> ddh_rc { return DDH_OK; };
  return t;
}

class HostServices {
 public:
  // `plugin`: who calls, "strategy:mine".
  explicit HostServices(const std::string& plugin, const std::string& section = "")
      : services(seat_, std::make_unique<Config>(),
                 std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>())),
        caller(services, plugin, section) {
    const ddh_module& cpu = ddhost::test::cpu_module();
    device_ = Instance({&cpu, cpu.desc[0], "cpu"}, caller.host(), "device");
    const auto& table = device_.require<ddh_device_api>(DDH_DEVICE_IFACE, DDH_DEVICE_API_MIN_SIZE);
    services.device = std::make_unique<Device>(device_.get(), table, DDH_CAP_HOST_MEMORY, "cpu", 0);
    services.memory.use(*services.device);
    services.staging = std::make_unique<Staging>(services.memory);
    services.comm = std::make_unique<Comm>(reinterpret_cast<ddh_inst*>(this), &transport_, nullptr, services.clock);
    services.windows = std::make_unique<Windows>(*services.comm, services.memory, *services.staging,
                                                 WindowSettings{false, false, 1, false});
  }
  HostServices(const HostServices&) = delete;
  HostServices& operator=(const HostServices&) = delete;
  ~HostServices() {
    services.windows.reset();
    services.staging.reset();
    services.memory.release_all();
    services.device.reset();
  }

  template <class Table>
  [[nodiscard]] const Table& table(const char* id) const {
    return *static_cast<const Table*>(host_interface(id));
  }
  // What the services read.
  [[nodiscard]] Config& config() { return static_cast<Config&>(services.config); }
  // First argument of every function of a table.
  [[nodiscard]] void* h() { return &caller; }

 private:
  KvLocal kv_;
  Progress progress_{1};
  ProgressOfRank record_{progress_, 0};
  RankSeat seat_{0, 1, 0, 0, kv_, record_, 7};
  ddh_comm_backend_api transport_ = transport_of_one();
  Instance device_;

 public:
  RankServices services;
  PluginSeat caller;
};

}  // namespace ddhost::test
