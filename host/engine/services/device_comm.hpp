// SPDX-License-Identifier: Apache-2.0
//
// engine/services/device_comm.hpp: a transport for buffers in memory of the device (DDH_CAP_DEVICE_BUFFERS), which is
// used beside the transport for host memory. Plugins know groups by the handles of the host's transport.
#pragma once

#include <map>

#include "ddh/ddh.h"
#include "engine/calls/plugin_caller.hpp"

namespace ddhost {

class DeviceComm {
 public:
  // `inst` is an initialized transport and outlives this object; `host_world`: the group of all ranks.
  DeviceComm(ddh_inst* inst, const ddh_comm_backend_api& backend, const PluginCaller& caller, ddh_group* host_world)
      : inst_(inst), backend_(backend), call_(caller) {
    groups_[host_world] = backend_.world(inst_);
    if (DDH_CAN(&backend_, ddh_comm_backend_api, buffer_allocate) !=
        DDH_CAN(&backend_, ddh_comm_backend_api, buffer_release))
      call_.blame(PluginCall::kBufferAllocate, {}, "and buffer_release belong together, but there is only one of them");
  }

  // Creates the group that belongs to the host transport's `host_group`. [collective]
  void add_group(ddh_group* host_group, const char* name, const int32_t* ranks, uint32_t n) {
    call_(PluginCall::kGroupCreate, backend_.group_create, inst_, name, ranks, n, &groups_[host_group]);
  }
  // The group's DDH_COMM_*.
  [[nodiscard]] uint32_t caps(ddh_group* host_group) const {
    int32_t rank = 0, size = 0;
    uint32_t caps = 0;
    call_(PluginCall::kGroupInfo, backend_.group_info, inst_, groups_.at(host_group), &rank, &size, &caps);
    return caps;
  }

  using Collective = ddh_rc (*ddh_comm_backend_api::*)(ddh_inst*, const ddh_coll*, ddh_err*) noexcept;
  [[nodiscard]] bool has(Collective slot) const { return backend_.*slot != nullptr; }
  // Queues a collective on c.stream. All its buffers are in memory that the device reaches; c.group is a group of the
  // host's transport.
  void queue(PluginCall call, Collective slot, ddh_coll c) const {
    c.group = groups_.at(c.group);
    call_(call, backend_.*slot, inst_, &c);
  }

  // Throws if the transport has given up collectives: then the device's work ends without an error, and without their
  // results. Called after a wait for the device.
  void require_healthy() const {
    if (DDH_CAN(&backend_, ddh_comm_backend_api, poll)) call_(PluginCall::kPoll, backend_.poll, inst_);
  }

  // A block of the transport's own memory.
  class Block {
   public:
    // `bytes` is the same on every rank of the group. Without a transport, or if it has no memory to give, data is nullptr.
    // [collective]
    Block(const DeviceComm* comm, ddh_group* host_group, uint64_t bytes) : comm_(comm) {
      if (comm_ == nullptr || !DDH_CAN(&comm_->backend_, ddh_comm_backend_api, buffer_allocate)) return;
      group_ = comm_->groups_.at(host_group);
      comm_->call_(PluginCall::kBufferAllocate, comm_->backend_.buffer_allocate, comm_->inst_, group_, bytes, &data_);
      if (reinterpret_cast<uintptr_t>(data_) % kAlignment != 0)
        comm_->call_.blame(PluginCall::kBufferAllocate, {}, "gives a block that is not ", kAlignment, "-byte aligned");
    }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block() {
      if (data_ == nullptr) return;
      const PluginCaller::Entered entered = comm_->call_.enter(PluginCall::kBufferRelease);
      comm_->backend_.buffer_release(comm_->inst_, group_, data_);
    }
    [[nodiscard]] void* data() const { return data_; }

   private:
    static constexpr uintptr_t kAlignment = 256;
    const DeviceComm* const comm_;
    ddh_group* group_ = nullptr;
    void* data_ = nullptr;
  };

  // The lifetime of a block of the device that collectives of the group use.
  class Registration {
   public:
    Registration(const DeviceComm* comm, ddh_group* host_group, void* p, uint64_t bytes) : comm_(comm), p_(p) {
      if (comm_ == nullptr) return;
      group_ = comm_->groups_.at(host_group);
      const ddh_comm_backend_api& backend = comm_->backend_;
      if (DDH_CAN(&backend, ddh_comm_backend_api, buffer_register))
        backend.buffer_register(comm_->inst_, group_, p_, bytes);
    }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;
    ~Registration() {
      if (comm_ == nullptr) return;
      const ddh_comm_backend_api& backend = comm_->backend_;
      if (DDH_CAN(&backend, ddh_comm_backend_api, buffer_unregister))
        backend.buffer_unregister(comm_->inst_, group_, p_);
    }

   private:
    const DeviceComm* const comm_;
    ddh_group* group_ = nullptr;
    void* const p_;
  };

 private:
  ddh_inst* const inst_;
  const ddh_comm_backend_api& backend_;
  const PluginCaller call_;
  std::map<ddh_group*, ddh_group*> groups_;  // of the host's transport -> of this one
};

}  // namespace ddhost
