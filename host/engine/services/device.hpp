// SPDX-License-Identifier: Apache-2.0
//
// engine/services/device.hpp: C++ access of the host to the rank's device, over the plugin's C tables.
#pragma once

#include <optional>
#include <string>

#include "ddh/ddh.h"
#include "engine/calls/plugin_caller.hpp"

namespace ddhost {

class Device {
 public:
  // Opens device number local_rank modulo count. `inst` is an instance of a device plugin `name` with the given `caps`
  // and outlives this object.
  Device(ddh_inst* inst, const ddh_device_api& table, uint64_t caps, std::string name, int32_t local_rank,
         const PluginCaller& caller = PluginCaller("the device"));
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  [[nodiscard]] const std::string& name() const { return name_; }
  // The device's description: name of its model, and memory.
  [[nodiscard]] ddh_device_info info() const;
  // Its memory is host memory and its streams run inline: no copy and no wait is needed to access it.
  [[nodiscard]] bool is_host_memory() const { return (caps_ & DDH_CAP_HOST_MEMORY) != 0; }
  // Host functions on its streams can access its memory.
  [[nodiscard]] bool is_host_reachable() const { return is_host_memory() || (caps_ & DDH_CAP_HOST_REACHABLE) != 0; }

  // The tables to which ddh.stream, ddh.copy and ddh.flatops forward; `context` is the first argument.
  [[nodiscard]] void* context() const { return context_; }
  [[nodiscard]] const ddh_stream_api& streams() const { return *table_.stream; }
  [[nodiscard]] const ddh_copy_api& copies() const { return *table_.copy; }
  [[nodiscard]] const ddh_flatops_api& flatops() const { return *table_.flatops; }
  // nullptr: it runs no kernels of plugins.
  [[nodiscard]] const ddh_kernels_api* kernels() const { return table_.kernels; }

  // What it measures of itself; nullopt: nothing.
  [[nodiscard]] std::optional<ddh_device_usage> usage() const;
  // Its fastest arithmetic with factors of `dtype`; nullopt: it does not know.
  [[nodiscard]] std::optional<ddh_device_peak> peak(int32_t dtype) const;

  void* allocate(const ddh_alloc_args& args);
  // Calls functions of its tables.
  [[nodiscard]] const PluginCaller& call() const { return call_; }
  void release(void* p, int32_t memory) noexcept { table_.release(context_, p, memory); }

  void copy(void* dst, int32_t dst_memory, const void* src, int32_t src_memory, uint64_t bytes, ddh_stream* stream) {
    call_(PluginCall::kCopy, copies().copy, context_, dst, dst_memory, src, src_memory, bytes, stream);
  }
  void synchronize(ddh_stream* stream) { call_(PluginCall::kSynchronize, streams().synchronize, context_, stream); }
  // Declares that the caller itself accesses [data, data + bytes) of host memory now (DDH_ACCESS_*).
  void touch(const void* data, uint64_t bytes, uint32_t mode, const char* name) {
    const ddh_access access{data, bytes, mode, 0};
    call_(PluginCall::kDeviceWork, streams().touch, context_, &access, 1u, name);
  }

 private:
  ddh_inst* const inst_;
  const ddh_device_api& table_;
  const uint64_t caps_;
  const std::string name_;
  const PluginCaller call_;
  void* context_ = nullptr;
};

// A point in one stream that other streams can wait for.
class StreamMark {
 public:
  explicit StreamMark(Device& device) : device_(device) {
    device.call()(PluginCall::kDeviceWork, device.streams().event_create, device.context(), &event_);
  }
  StreamMark(const StreamMark&) = delete;
  StreamMark& operator=(const StreamMark&) = delete;
  ~StreamMark() { device_.streams().event_destroy(device_.context(), event_); }

  void set(ddh_stream* stream) {
    device_.call()(PluginCall::kDeviceWork, device_.streams().record, device_.context(), event_, stream);
  }
  void order(ddh_stream* stream) {
    device_.call()(PluginCall::kDeviceWork, device_.streams().wait, device_.context(), stream, event_);
  }

 private:
  Device& device_;
  ddh_event* event_ = nullptr;
};

}  // namespace ddhost
