// SPDX-License-Identifier: Apache-2.0
//
// engine/services/comm/comm.hpp: C++ access of the host to the run's transport, over the plugin's C tables.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <system_error>
#include <vector>

#include "base/clock.hpp"
#include "ddh/ddh.h"
#include "ddh/sdk/collective.hpp"
#include "ddh/sdk/sent_bytes.hpp"
#include "engine/calls/plugin_caller.hpp"
#include "engine/services/comm/comm_thread.hpp"
#include "engine/services/nodes.hpp"

namespace ddhost {

// A transport for buffers in memory of the device (DDH_CAP_DEVICE_BUFFERS), which is used beside the transport for host
// memory. Plugins know groups by the handles of the host's transport.
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

class Comm {
 public:
  // `inst` is an initialized transport and outlives this object. `nodes` null: all ranks are on one node.
  Comm(ddh_inst* inst, const ddh_comm_backend_api* backend, const ddh_comm_shared_api* shared, Clock& clock,
       const PluginCaller& caller = PluginCaller("the transport"), std::shared_ptr<const Nodes> nodes = nullptr)
      : inst_(inst), backend_(backend), shared_(shared), clock_(clock), call_(caller), nodes_(std::move(nodes)) {
    world_ = backend_->world(inst_);
    group_info(world_, &rank_, &world_size_, nullptr);
    members_[world_].resize(static_cast<size_t>(world_size_));
    std::iota(members_[world_].begin(), members_[world_].end(), 0);
  }

  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  ~Comm() { end_thread(); }

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
  // Makes the thread that reduces gradients while the rank computes (comm.overlap). `record`: of the rank, or nullptr.
  void overlap(RankRecord* record) {
    try {
      thread_ = std::make_unique<CommThread>(clock_, call_, PluginCaller(call_.name(), record, RankThread::kComm));
    } catch (const std::system_error& e) {
      ddh::fail(DDH_RESOURCE_EXHAUSTED, "no thread can be started that sums gradients (", e.what(),
                "); raise the limit of threads (ulimit -u), or set comm.overlap=false");
    }
  }
  [[nodiscard]] CommThread* thread() const { return thread_.get(); }  // null: there is none
  // Until nothing is left for that thread, and all is finished. Throws if a transfer has failed.
  void wait_for_thread() const {
    if (thread_ != nullptr) thread_->wait_all();
  }
  // The same without an error, and without finishing: for calls of the transport that can't fail.
  void settle_thread() const noexcept {
    if (thread_ != nullptr) thread_->settle();
  }
  // Ends that thread, after the running transfer. A rank that has failed calls it before the memory of transfers is freed.
  void end_thread() {
    if (thread_ != nullptr) thread_->end();  // the running transfer reads thread_
    thread_.reset();
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
    members_[group] = {ranks, ranks + n};
    return group;
  }
  // The world's ranks in a group, which outlive the group.
  [[nodiscard]] const std::vector<int32_t>& members_of(ddh_group* group) const {
    return members_.at(group_or_world(group));
  }
  // The members of each group that was made, and whether it is the one of all ranks.
  template <class Body>
  void for_each_group(Body&& body) const {
    for (const auto& [group, ranks] : members_) body(ranks, group == world_);
  }
  // The members of a group.
  [[nodiscard]] ddh::GroupRanks ranks_of(ddh_group* group) const {
    const std::vector<int32_t>& ranks = members_.at(group_or_world(group));
    const auto me = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    return {ranks, static_cast<size_t>(me), nodes_ == nullptr ? nullptr : nodes_->node_of().data()};
  }
  // For the counters of what plugins send; `operation`: for a profile.
  void count_sent(const ddh::SentBytes& sent, const char* operation) const {
    clock_.note_operation(operation, sent.all);
    clock_.count("comm.sent_bytes", sent.all);
    if (nodes_ != nullptr && nodes_->count() > 1) clock_.count("comm.sent_between_nodes_bytes", sent.between_nodes);
  }
  // Calls functions of its tables, after what the thread has to do.
  template <class Function, class... Args>
  void call(PluginCall call, Function function, Args&&... args) const {
    wait_for_thread();
    call_(call, function, inst_, std::forward<Args>(args)...);
  }
  // Calls without waiting for the thread: from a transfer, or after wait_for_thread.
  template <class Function, class... Args>
  void call_in_transfer(PluginCall call, Function function, Args&&... args) const {
    const bool on_thread = thread_ != nullptr && thread_->is_calling_thread();
    (on_thread ? thread_->own_caller() : call_)(call, function, inst_, std::forward<Args>(args)...);
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
    call_(PluginCall::kGroupInfo, backend_->group_info, inst_, group, &rank_out, &size_out, &caps_out);
    if (rank != nullptr) *rank = rank_out;
    if (size != nullptr) *size = size_out;
    if (caps != nullptr) *caps = device_ == nullptr ? caps_out : caps_out & device_->caps(group);
  }

  // Gathers every rank's `bytes` at `mine` into `all`, in rank order. `group` NULL: the world.
  void all_gather_bytes(const void* mine, void* all, uint64_t bytes, const char* label,
                        ddh_group* group = nullptr) const {
    const ClockSpan span(clock_, DDH_SPAN_COMM, SpanTopic("all_gather", label).among(members_of(group)));
    ddh_coll c = ddh::collective(DDH_U8, label);
    c.send = mine;
    c.recv = all;
    c.count = bytes;
    c.group = group_or_world(group);
    call(PluginCall::kAllGather, backend_->all_gather, &c);
  }
  // Sums each of `count` integers over the ranks, in place, with wrap-around.
  void all_reduce_i64(int64_t* values, uint64_t count, const char* label) const {
    const ClockSpan span(clock_, DDH_SPAN_COMM, SpanTopic("all_reduce", label).among(members_of(world_)));
    if (backend_->all_reduce == nullptr)
      ddh::fail(DDH_UNIMPLEMENTED, "this transport has no all_reduce; choose another with --comm");
    ddh_coll c = ddh::collective(DDH_I64, label);
    c.op = DDH_SUM;
    c.send = values;
    c.recv = values;
    c.count = count;
    c.group = world_;
    call(PluginCall::kAllReduce, backend_->all_reduce, &c);
  }
  void broadcast_bytes(void* data, uint64_t bytes, int32_t root, const char* label) const {
    const ClockSpan span(clock_, DDH_SPAN_COMM, SpanTopic("broadcast", label).among(members_of(world_)));
    ddh_coll c = ddh::collective(DDH_U8, label);
    c.root = root;
    c.send = data;
    c.recv = data;
    c.count = bytes;
    c.group = world_;
    call(PluginCall::kBroadcast, backend_->broadcast, &c);
  }
  // Sends `counts` bytes of `out` to each rank, and fills `in` with `in_counts` bytes of each; all in rank order.
  void all_to_all_bytes(const void* out, const std::vector<uint64_t>& counts, void* in,
                        const std::vector<uint64_t>& in_counts, const char* label) const {
    const ClockSpan span(clock_, DDH_SPAN_COMM, SpanTopic("all_to_all", label).among(members_of(world_)));
    if (backend_->all_to_all == nullptr)
      ddh::fail(DDH_UNIMPLEMENTED, "this transport has no all_to_all; choose another with --comm");
    ddh_coll c = ddh::collective(DDH_U8, label);
    c.send = out;
    c.recv = in;
    c.counts = counts.data();
    c.recv_counts = in_counts.data();
    c.group = world_;
    call(PluginCall::kAllToAll, backend_->all_to_all, &c);
  }
  void barrier() const {
    const ClockSpan span(clock_, DDH_SPAN_COMM, SpanTopic("barrier").among(members_of(world_)));
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
  const std::shared_ptr<const Nodes> nodes_;
  mutable std::map<ddh_group*, std::vector<int32_t>> members_;
  std::unique_ptr<CommThread> thread_;  // the last member: a transfer uses the others
};

}  // namespace ddhost
