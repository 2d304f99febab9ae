// SPDX-License-Identifier: Apache-2.0
//
// The C tables of a C++ device.
#include "ddh/sdk/device.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

struct DeviceSlots {
  static ddh_rc instruction_set(ddh_inst* i, const char* limit, const char** out, ddh_err* err) noexcept {
    return guard(err, [&] {
      auto& self = self_as<Device>(i);
      self.instruction_set_ = self.instruction_set(limit);
      *out = self.instruction_set_.c_str();
    });
  }
};

namespace {

OpenDevice& device_of(void* context) { return *static_cast<OpenDevice*>(context); }

// The C function of a member function. `call` of one without a result, `make` of one with a result.
template <auto Function>
struct Slot;
template <class Result, class... Args, Result (OpenDevice::*Function)(Args...)>
struct Slot<Function> {
  static ddh_rc call(void* context, Args... args, ddh_err* err) noexcept {
    return guard(err, [&] { (device_of(context).*Function)(args...); });
  }
  static ddh_rc make(void* context, Args... args, Result* out, ddh_err* err) noexcept
      requires(!std::is_void_v<Result>) {
    return guard(err, [&] { *out = (device_of(context).*Function)(args...); });
  }
};
// The same for the end of a handle; NULL is ignored.
template <class Handle, void (OpenDevice::*Function)(Handle*)>
void destroy(void* context, Handle* handle) noexcept {
  if (handle != nullptr) guard(nullptr, [&] { (device_of(context).*Function)(handle); });
}

ddh_stream_api stream_table(bool has_graphs) {
  ddh_stream_api out = {
      sizeof(ddh_stream_api),
      0,
      Slot<&OpenDevice::stream_create>::make,
      destroy<ddh_stream, &OpenDevice::stream_destroy>,
      Slot<&OpenDevice::event_create>::make,
      destroy<ddh_event, &OpenDevice::event_destroy>,
      Slot<&OpenDevice::record>::call,
      Slot<&OpenDevice::wait>::call,
      Slot<&OpenDevice::synchronize>::call,
      [](void* context, ddh_stream* stream) noexcept { return device_of(context).native(stream); },
      Slot<&OpenDevice::run>::call,
      Slot<&OpenDevice::touch>::call,
      nullptr,
      nullptr,
      nullptr,
      nullptr,
  };
  if (!has_graphs) return out;
  out.capture_begin = Slot<&OpenDevice::capture_begin>::call;
  out.capture_end = [](void* context, ddh_stream* stream, ddh_graph** graph, ddh_err* err) noexcept {
    return guard(err, [&] {
      if (graph == nullptr) return device_of(context).capture_discard(stream);
      *graph = device_of(context).capture_end(stream);
    });
  };
  out.graph_launch = Slot<&OpenDevice::graph_launch>::call;
  out.graph_destroy = destroy<ddh_graph, &OpenDevice::graph_destroy>;
  return out;
}

ddh_flatops_api flatops_table(bool has_sums) {
  return {
      sizeof(ddh_flatops_api),
      0,
      Slot<&OpenDevice::fill>::call,
      Slot<&OpenDevice::cast>::call,
      Slot<&OpenDevice::scale>::call,
      Slot<&OpenDevice::add>::call,
      has_sums ? Slot<&OpenDevice::exact_squares>::call : nullptr,
      has_sums ? Slot<&OpenDevice::ordered_sum>::call : nullptr,
  };
}

ddh_rc usage_of(void* context, ddh_device_usage* out, ddh_err* err) noexcept {
  return guard(err, [&] { copy_out(device_of(context).usage(), *out); });
}

ddh_rc peak_of(void* context, int32_t dtype, ddh_device_peak* out, ddh_err* err) noexcept {
  return guard(err, [&] { copy_out(device_of(context).peak(dtype), *out); });
}

ddh_rc present_of(ddh_inst* i, int32_t* out, ddh_err* err) noexcept {
  return guard(err, [&] { *out = self_as<Device>(i).present(); });
}

// `count`, `open`, `close`, `present` and `instruction_set` belong to the plugin, all others to the open device. The pointers
// to tables are missing.
ddh_device_api device_table(const DeviceParts& parts) {
  return {
      sizeof(ddh_device_api),
      0,
      [](ddh_inst* i, int32_t* out, ddh_err* err) noexcept {
        return guard(err, [&] { *out = self_as<Device>(i).count(); });
      },
      [](ddh_inst* i, int32_t index, void** context, ddh_err* err) noexcept {
        return guard(err, [&] { *context = self_as<Device>(i).open(index).release(); });
      },
      [](ddh_inst*, void* context, ddh_device_info* out, ddh_err* err) noexcept {
        return guard(err, [&] { copy_out(device_of(context).info(), *out); });
      },
      [](ddh_inst* i, void* context) noexcept {
        self_as<Device>(i).close(std::unique_ptr<OpenDevice>(&device_of(context)));
      },
      [](void* context, const ddh_alloc_args* args, void** out, ddh_err* err) noexcept {
        return guard(err, [&] { *out = device_of(context).allocate(copy_of(args)); });
      },
      [](void* context, void* p, int32_t memory) noexcept {
        guard(nullptr, [&] { device_of(context).release(p, memory); });
      },
      nullptr,
      nullptr,
      nullptr,
      nullptr,
      parts.usage ? usage_of : nullptr,
      parts.present ? present_of : nullptr,
      parts.peak ? peak_of : nullptr,
      parts.instruction_set ? DeviceSlots::instruction_set : nullptr,
  };
}

ddh_device_api with_tables(ddh_device_api out, const ddh_stream_api* streams, const ddh_copy_api* copy,
                           const ddh_flatops_api* flatops, const ddh_kernels_api* kernels) {
  out.stream = streams, out.copy = copy, out.flatops = flatops, out.kernels = kernels;
  return out;
}

[[noreturn]] void lacks(const char* slot) {
  fail(DDH_INTERNAL, "a device says in its DeviceParts that it has ", slot, ", but does not override it; correct one");
}

}  // namespace

void OpenDevice::exact_squares(const float*, uint64_t, uint64_t*, ddh_stream*) { lacks("exact_squares"); }
void OpenDevice::ordered_sum(float*, const float* const*, uint32_t, uint32_t, uint32_t, uint64_t, ddh_stream*) {
  lacks("ordered_sum");
}
void OpenDevice::capture_begin(ddh_stream*, const char*) { lacks("capture_begin"); }
ddh_graph* OpenDevice::capture_end(ddh_stream*) { lacks("capture_end"); }
void OpenDevice::capture_discard(ddh_stream*) { lacks("capture_discard"); }
void OpenDevice::graph_launch(ddh_graph*, ddh_stream*) { lacks("graph_launch"); }
void OpenDevice::graph_destroy(ddh_graph*) { lacks("graph_destroy"); }
ddh_kernel* OpenDevice::kernel_find(const void*, const char*, uint64_t) { lacks("kernel_find"); }
void OpenDevice::kernel_launch(ddh_kernel*, uint32_t, uint32_t, const void*, const ddh_access*, uint32_t, ddh_stream*) {
  lacks("kernel_launch");
}
ddh_device_usage OpenDevice::usage() { lacks("usage"); }
ddh_device_peak OpenDevice::peak(int32_t) { lacks("peak"); }
int32_t Device::present() { lacks("present"); }
std::string Device::instruction_set(const char*) { lacks("instruction_set"); }

Device::Device(const ddh_create& create, DeviceParts parts)
    : Instance(create),
      streams_(stream_table(parts.graphs)),
      copy_{sizeof(ddh_copy_api), 0, Slot<&OpenDevice::copy>::call},
      flatops_(flatops_table(parts.sums)),
      kernels_{sizeof(ddh_kernels_api), 0, [](void* context) noexcept { return device_of(context).kernel_format(); },
               Slot<&OpenDevice::kernel_find>::make, Slot<&OpenDevice::kernel_launch>::call},
      device_(with_tables(device_table(parts), &streams_, &copy_, &flatops_, parts.kernels ? &kernels_ : nullptr)) {}

const void* Device::interface(std::string_view id) const { return id == DDH_DEVICE_IFACE ? &device_ : nullptr; }

}  // namespace DDH_HIDDEN
}  // namespace ddh
