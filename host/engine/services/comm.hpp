// SPDX-License-Identifier: Apache-2.0
//
// engine/services/comm.hpp: C++ access of the host to the run's transport, over the plugin's C tables.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "ddh/ddh.h"
#include "engine/calls/plugin_caller.hpp"
#include "engine/services/clock.hpp"
#include "engine/services/device_comm.hpp"

namespace ddhost {

class Comm {
 public:
  // `inst` is an initialized transport and outlives this object.
  Comm(ddh_inst* inst, const ddh_comm_backend_api* backend, const ddh_comm_shared_api* shared, Clock& clock,
       const PluginCaller& caller = PluginCaller("the transport"))
      : inst_(inst), backend_(backend), shared_(shared), clock_(clock), call_(caller) {
    world_ = backend_->world(inst_);
    group_info(world_, &rank_, &world_size_, nullptr);
  }

  [[nodiscard]] int32_t rank() const { return rank_; }
  [[nodiscard]] int32_t world_size() const { return world_size_; }
  // The index of this rank's micro-batch `index` among those of all ranks in a step.
  [[nodiscard]] int64_t global_micro_batch(uint64_t index) const {
    return static_cast<int64_t>(index) * world_size_ + rank_;
  }
  [[nodiscard]] ddh_group* world() const { return world_; }
  [[nodiscard]] ddh_group* group_or_world(ddh_group* group) const { return group != nullptr ? group : world_; }
  [[nodiscard]] ddh_inst* inst() const { return inst_; }
  [[nodiscard]] const ddh_comm_backend_api* backend() const { return backend_; }
  [[nodiscard]] const ddh_comm_shared_api* shared() const { return shared_; }  // null: ranks do not share memory
  [[nodiscard]] Clock& clock() const { return clock_; }
  // The transport of buffers in memory of the device; null: they go through staging. This transport then has host memory
  // only.
  [[nodiscard]] DeviceComm* device() const { return device_.get(); }
  void use_device(ddh_inst* inst, const ddh_comm_backend_api& backend, const PluginCaller& caller) {
    device_ = std::make_unique<DeviceComm>(inst, backend, caller, world_);
  }
  // Throws if the device's transport has given up collectives; see DeviceComm.
  void require_healthy() const {
    if (device_ != nullptr) device_->require_healthy();
  }
  // [collective]
  ddh_group* group_create(const char* name, const int32_t* ranks, uint32_t n) const {
    ddh_group* group = nullptr;
    call(PluginCall::kGroupCreate, backend_->group_create, name, ranks, n, &group);
    if (device_ != nullptr) device_->add_group(group, name, ranks, n);
    return group;
  }
  // Calls functions of its tables.
  template <class Function, class... Args>
  void call(PluginCall call, Function function, Args&&... args) const {
    call_(call, function, inst_, std::forward<Args>(args)...);
  }

  // The scope of a plugin's collective. Throws if another thread of the rank is in one.
  class Turn {
   public:
    explicit Turn(const Comm& comm) : busy_(comm.busy_) {
      if (busy_.test_and_set(std::memory_order_acquire))
        ddh::fail(DDH_FAILED_PRECONDITION, "another thread of this rank is in a collective; make one call at a time");
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() { busy_.clear(std::memory_order_release); }

   private:
    std::atomic_flag& busy_;
  };

  // True on every rank if `mine` is true on one of them. [collective]
  [[nodiscard]] bool any(bool mine, const char* label) const {
    const uint8_t flag = mine ? 1 : 0;
    std::vector<uint8_t> all(static_cast<size_t>(world_size_));
    all_gather_bytes(&flag, all.data(), sizeof flag, label);
    return std::find(all.begin(), all.end(), 1) != all.end();
  }

  void group_info(ddh_group* group, int32_t* rank, int32_t* size, uint32_t* caps) const {
    int32_t rank_out = 0, size_out = 0;
    uint32_t caps_out = 0;
    call(PluginCall::kGroupInfo, backend_->group_info, group, &rank_out, &size_out, &caps_out);
    if (rank != nullptr) *rank = rank_out;
    if (size != nullptr) *size = size_out;
    if (caps != nullptr) *caps = device_ == nullptr ? caps_out : caps_out & device_->caps(group);
  }

  // Gathers every rank's `bytes` at `mine` into `all`, in rank order. `group` NULL: the world.
  void all_gather_bytes(const void* mine, void* all, uint64_t bytes, const char* label,
                        ddh_group* group = nullptr) const {
    const ClockSpan span(clock_, DDH_SPAN_COMM);
    ddh_coll c{};
    c.struct_size = sizeof c;
    c.dtype = DDH_U8;
    c.send = mine;
    c.recv = all;
    c.count = bytes;
    c.group = group_or_world(group);
    c.label = label;
    call(PluginCall::kAllGather, backend_->all_gather, &c);
  }
  // Sums each of `count` integers over the ranks, in place, with wrap-around.
  void all_reduce_i64(int64_t* values, uint64_t count, const char* label) const {
    const ClockSpan span(clock_, DDH_SPAN_COMM);
    if (backend_->all_reduce == nullptr)
      ddh::fail(DDH_UNIMPLEMENTED, "this transport has no all_reduce; choose another with --comm");
    ddh_coll c{};
    c.struct_size = sizeof c;
    c.dtype = DDH_I64;
    c.op = DDH_SUM;
    c.send = values;
    c.recv = values;
    c.count = count;
    c.group = world_;
    c.label = label;
    call(PluginCall::kAllReduce, backend_->all_reduce, &c);
  }
  void broadcast_bytes(void* data, uint64_t bytes, int32_t root, const char* label) const {
    const ClockSpan span(clock_, DDH_SPAN_COMM);
    ddh_coll c{};
    c.struct_size = sizeof c;
    c.dtype = DDH_U8;
    c.root = root;
    c.send = data;
    c.recv = data;
    c.count = bytes;
    c.group = world_;
    c.label = label;
    call(PluginCall::kBroadcast, backend_->broadcast, &c);
  }
  void barrier() const {
    const ClockSpan span(clock_, DDH_SPAN_COMM);
    call(PluginCall::kBarrier, backend_->barrier, world_);
  }

 private:
  ddh_inst* inst_;
  const ddh_comm_backend_api* backend_;
  const ddh_comm_shared_api* shared_;
  mutable std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
  Clock& clock_;
  PluginCaller call_;
  std::unique_ptr<DeviceComm> device_;
  ddh_group* world_ = nullptr;
  int32_t rank_ = 0, world_size_ = 1;
};

}  // namespace ddhost
