// SPDX-License-Identifier: Apache-2.0
#include "engine/services/device.hpp"

#include <cmath>

namespace ddhost {
namespace {

void require_table(const std::string& device, const char* id, const void* table, uint32_t size, uint32_t min_size) {
  if (table != nullptr && size >= min_size) return;
  ddh::fail(DDH_FAILED_PRECONDITION, "device '", device, "' gives a table ", id, " of ", size, " bytes, but at least ",
            min_size, " are needed; rebuild it with this host's plugin_api");
}

template <class Table>
uint32_t size_of(const Table* table) {
  return table == nullptr ? 0 : table->struct_size;
}

}  // namespace

Device::Device(ddh_inst* inst, const ddh_device_api& table, uint64_t caps, std::string name, int32_t local_rank,
               const PluginCaller& caller)
    : inst_(inst), table_(table), caps_(caps), name_(std::move(name)), call_(caller) {
  require_table(name_, DDH_STREAM_IFACE, table.stream, size_of(table.stream), DDH_STREAM_API_MIN_SIZE);
  require_table(name_, DDH_COPY_IFACE, table.copy, size_of(table.copy), DDH_COPY_API_MIN_SIZE);
  require_table(name_, DDH_FLATOPS_IFACE, table.flatops, size_of(table.flatops), DDH_FLATOPS_API_MIN_SIZE);
  int32_t count = 0;
  call_(PluginCall::kDeviceOpen, table.count, inst, &count);
  if (count < 1)
    ddh::fail(DDH_UNAVAILABLE, "this machine has no device of the kind '", name_, "'; choose another --device");
  call_(PluginCall::kDeviceOpen, table.open, inst, local_rank % count, &context_);
}

Device::~Device() { table_.close(inst_, context_); }

ddh_device_info Device::info() const {
  ddh_device_info out{};
  out.struct_size = sizeof out;
  call_(PluginCall::kDeviceOpen, table_.info, inst_, context_, &out);
  out.name[sizeof out.name - 1] = '\0';
  return out;
}

std::optional<ddh_device_usage> Device::usage() const {
  if (!DDH_CAN(&table_, ddh_device_api, usage)) return std::nullopt;
  ddh_device_usage out{};
  out.struct_size = sizeof out;
  CallError error;
  if (table_.usage(context_, &out, error.get()) != DDH_OK) return std::nullopt;
  return out;
}

std::optional<ddh_device_peak> Device::peak(int32_t dtype) const {
  if (!DDH_CAN(&table_, ddh_device_api, peak)) return std::nullopt;
  ddh_device_peak out{};
  out.struct_size = sizeof out;
  CallError error;
  if (table_.peak(context_, dtype, &out, error.get()) != DDH_OK) return std::nullopt;
  if (!std::isfinite(out.flops_per_s) || out.flops_per_s <= 0 || ddh_dtype_bytes(out.dtype) == 0) return std::nullopt;
  return out;
}

void* Device::allocate(const ddh_alloc_args& args) {
  void* p = nullptr;
  call_(PluginCall::kAllocate, table_.allocate, context_, &args, &p);
  return p;
}

}  // namespace ddhost
