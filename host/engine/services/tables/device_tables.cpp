// SPDX-License-Identifier: Apache-2.0
//
// Tables of ddh.stream, ddh.copy, ddh.flatops and ddh.kernels: each call goes to the table of the same name of the
// rank's device. The streams, events and graphs of each plugin are kept, so that each is destroyed once.
#include "engine/services/tables/tables.hpp"

namespace ddhost::detail {
namespace {

// The device of `h`. Before it is open: nullptr, with a message in `err`.
const Device* open_device(void* h, ddh_err* err) noexcept {
  const Device* device = services_of(h).device.get();
  if (device == nullptr)
    ddh_fail(err, DDH_FAILED_PRECONDITION, "streams and copies are not available before the device is open");
  return device;
}

// Forwards a call: the device's context, then the same arguments.
template <class Table, const Table& (Device::*table)() const, auto slot, class... Args>
ddh_rc forward(void* h, Args... args, ddh_err* err) noexcept {
  const Device* device = open_device(h, err);
  if (device == nullptr) return DDH_FAILED_PRECONDITION;
  return ((device->*table)().*slot)(device->context(), args..., err);
}

template <auto slot, class... Args>
ddh_rc stream_call(void* h, Args... args, ddh_err* err) noexcept {
  return forward<ddh_stream_api, &Device::streams, slot, Args...>(h, args..., err);
}
template <auto slot, class... Args>
ddh_rc flat_call(void* h, Args... args, ddh_err* err) noexcept {
  return forward<ddh_flatops_api, &Device::flatops, slot, Args...>(h, args..., err);
}

// An operation that a device may lack.
template <auto slot, class... Args>
ddh_rc optional_flat_call(void* h, size_t offset, const char* name, ddh_err* err, Args... args) noexcept {
  const Device* device = open_device(h, err);
  if (device == nullptr) return DDH_FAILED_PRECONDITION;
  const ddh_flatops_api& flatops = device->flatops();
  if (flatops.struct_size < offset + sizeof(void*) || flatops.*slot == nullptr)
    return ddh::guard(err, [&] {
      ddh::fail(DDH_UNIMPLEMENTED, "device '", device->name(), "' does not compute ", name, "; compute it on the host");
    });
  return (flatops.*slot)(device->context(), args..., err);
}

template <class Body>
ddh_rc with_kernels(void* h, ddh_err* err, Body&& body) noexcept {
  const Device* device = open_device(h, err);
  if (device == nullptr) return DDH_FAILED_PRECONDITION;
  if (device->kernels() == nullptr)
    return ddh::guard(err, [&] {
      ddh::fail(DDH_UNIMPLEMENTED, "device '", device->name(), "' runs no kernels; compute on the host");
    });
  return body(*device);
}

// A call that gives a new handle in *out.
template <class Handle, class Call>
ddh_rc create(void* h, Handle** out, ddh_err* err, const char* kind, const char* name, Call&& call) noexcept {
  const ddh_rc rc = call();
  if (rc != DDH_OK) return rc;
  return ddh::guard(err, [&] { services_of(h).handles.add(*out, seat_of(h).shown, kind, name); });
}

// Whether the caller has this handle, which it destroys now.
bool takes(void* h, const void* handle, const char* kind) noexcept {
  bool owned = false;
  if (handle != nullptr)
    ddh::guard(nullptr, [&] { owned = services_of(h).handles.take(handle, seat_of(h).shown, kind); });
  return owned;
}

bool has_graphs(const Device& device) { return DDH_CAN(&device.streams(), ddh_stream_api, graph_destroy); }

template <auto slot, class... Args>
ddh_rc graph_call(void* h, Args... args, ddh_err* err) DDH_NX {
  const Device* device = open_device(h, err);
  if (device == nullptr) return DDH_FAILED_PRECONDITION;
  if (!has_graphs(*device))
    return ddh::guard(err, [&] { ddh::fail(DDH_UNIMPLEMENTED, "device '", device->name(), "' has no graphs"); });
  return (device->streams().*slot)(device->context(), args..., err);
}

}  // namespace

const ddh_stream_api kStreamTable = {
    sizeof(ddh_stream_api),
    0,
    [](void* h, const char* name, ddh_stream** out, ddh_err* err) noexcept {
      return create(h, out, err, "stream", name,
                    [&] { return stream_call<&ddh_stream_api::create, const char*, ddh_stream**>(h, name, out, err); });
    },
    [](void* h, ddh_stream* stream) noexcept {
      const Device* d = open_device(h, nullptr);
      if (d != nullptr && takes(h, stream, "stream")) d->streams().destroy(d->context(), stream);
    },
    [](void* h, ddh_event** out, ddh_err* err) noexcept {
      return create(h, out, err, "event", nullptr,
                    [&] { return stream_call<&ddh_stream_api::event_create, ddh_event**>(h, out, err); });
    },
    [](void* h, ddh_event* event) noexcept {
      const Device* d = open_device(h, nullptr);
      if (d != nullptr && takes(h, event, "event")) d->streams().event_destroy(d->context(), event);
    },
    stream_call<&ddh_stream_api::record, ddh_event*, ddh_stream*>,
    stream_call<&ddh_stream_api::wait, ddh_stream*, ddh_event*>,
    stream_call<&ddh_stream_api::synchronize, ddh_stream*>,
    [](void* h, ddh_stream* stream) noexcept -> void* {
      const Device* d = open_device(h, nullptr);
      return d == nullptr ? nullptr : d->streams().native(d->context(), stream);
    },
    stream_call<&ddh_stream_api::run, ddh_stream*, ddh_stream_fn, void*, const ddh_access*, uint32_t, const char*>,
    stream_call<&ddh_stream_api::touch, const ddh_access*, uint32_t, const char*>,
    graph_call<&ddh_stream_api::capture_begin, ddh_stream*, const char*>,
    [](void* h, ddh_stream* stream, ddh_graph** out, ddh_err* err) noexcept {
      const auto call = [&] {
        return graph_call<&ddh_stream_api::capture_end, ddh_stream*, ddh_graph**>(h, stream, out, err);
      };
      return out == nullptr ? call() : create(h, out, err, "graph", nullptr, call);
    },
    graph_call<&ddh_stream_api::graph_launch, ddh_graph*, ddh_stream*>,
    [](void* h, ddh_graph* graph) noexcept {
      const Device* d = open_device(h, nullptr);
      if (d != nullptr && has_graphs(*d) && takes(h, graph, "graph")) d->streams().graph_destroy(d->context(), graph);
    },
};

const ddh_copy_api kCopyTable = {
    sizeof(ddh_copy_api),
    0,
    [](void* h, void* dst, int32_t dst_kind, const void* src, int32_t src_kind, uint64_t bytes, ddh_stream* stream,
       ddh_err* err) noexcept -> ddh_rc {
      for (const int32_t kind : {dst_kind, src_kind}) {
        if (kind < DDH_MEM_HOST || kind > DDH_MEM_PINNED)
          return ddh_fail(err, DDH_INVALID_ARGUMENT,
                          "copy: memory of an unknown kind; give DDH_MEM_HOST, DDH_MEM_DEVICE or DDH_MEM_PINNED");
      }
      return forward<ddh_copy_api, &Device::copies, &ddh_copy_api::copy, void*, int32_t, const void*, int32_t, uint64_t,
                     ddh_stream*>(h, dst, dst_kind, src, src_kind, bytes, stream, err);
    },
};

const ddh_flatops_api kFlatopsTable = {
    sizeof(ddh_flatops_api),
    0,
    flat_call<&ddh_flatops_api::fill, void*, int32_t, uint64_t, double, ddh_stream*>,
    flat_call<&ddh_flatops_api::cast, void*, int32_t, const void*, int32_t, uint64_t, ddh_stream*>,
    flat_call<&ddh_flatops_api::scale, float*, uint64_t, double, ddh_stream*>,
    flat_call<&ddh_flatops_api::add, float*, const float*, uint64_t, ddh_stream*>,
    [](void* h, const float* src, uint64_t numel, uint64_t* words, ddh_stream* stream, ddh_err* err) noexcept {
      return optional_flat_call<&ddh_flatops_api::exact_squares>(h, offsetof(ddh_flatops_api, exact_squares),
                                                                 "exact_squares", err, src, numel, words, stream);
    },
    [](void* h, float* dst, const float* const* srcs, uint32_t n_srcs, uint32_t reduce_block, uint32_t flags,
       uint64_t numel, ddh_stream* stream, ddh_err* err) noexcept {
      return optional_flat_call<&ddh_flatops_api::ordered_sum>(h, offsetof(ddh_flatops_api, ordered_sum), "ordered_sum",
                                                               err, dst, srcs, n_srcs, reduce_block, flags, numel,
                                                               stream);
    },
};

const ddh_kernels_api kKernelsTable = {
    sizeof(ddh_kernels_api),
    0,
    [](void* h) noexcept -> const char* {
      const Device* d = open_device(h, nullptr);
      return d == nullptr || d->kernels() == nullptr ? nullptr : d->kernels()->format(d->context());
    },
    [](void* h, const void* image, const char* name, uint64_t arg_bytes, ddh_kernel** out, ddh_err* err) noexcept {
      return with_kernels(
          h, err, [&](const Device& d) { return d.kernels()->find(d.context(), image, name, arg_bytes, out, err); });
    },
    [](void* h, ddh_kernel* kernel, uint32_t blocks, uint32_t threads, const void* arg, const ddh_access* accesses,
       uint32_t n_accesses, ddh_stream* stream, ddh_err* err) noexcept {
      return with_kernels(h, err, [&](const Device& d) {
        return d.kernels()->launch(d.context(), kernel, blocks, threads, arg, accesses, n_accesses, stream, err);
      });
    },
};

}  // namespace ddhost::detail
