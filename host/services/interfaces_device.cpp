// SPDX-License-Identifier: Apache-2.0
//
// Tables of ddh.stream, ddh.copy and ddh.flatops: each call goes to the table of the same name of the rank's device.
#include "services/interfaces.hpp"

namespace ddhost::detail {
namespace {

// The device behind `h`; a sentence in `err` and nullptr before it is open.
const Device* open_device(void* h, ddh_err* err) noexcept {
  const Device* device = services_of(h).device.get();
  if (device == nullptr)
    ddh_fail(err, DDH_FAILED_PRECONDITION, "streams and copies are not there before the device is open");
  return device;
}

// Hands a call on: the same arguments, with the device's context in front.
template <class Table, const Table& (Device::*table)() const, auto slot, class... Args>
ddh_rc forward(void* h, Args... args, ddh_err* err) noexcept {
  const Device* device = open_device(h, err);
  if (device == nullptr) return DDH_FAILED_PRECONDITION;
  return ((device->*table)().*slot)(device->context(), args..., err);
}

template <auto slot, class... Args>
ddh_rc stream_call(void* h, Args... args, ddh_err* err) noexcept {
  return forward<ddh_stream, &Device::streams, slot, Args...>(h, args..., err);
}
template <auto slot, class... Args>
ddh_rc flat_call(void* h, Args... args, ddh_err* err) noexcept {
  return forward<ddh_flatops, &Device::flatops, slot, Args...>(h, args..., err);
}

}  // namespace

const ddh_stream kStreamTable = {
    sizeof(ddh_stream),
    0,
    stream_call<&ddh_stream::create, const char*, ddh_stream_t**>,
    [](void* h, ddh_stream_t* stream) noexcept {
      if (const Device* d = open_device(h, nullptr)) d->streams().destroy(d->context(), stream);
    },
    stream_call<&ddh_stream::event_create, ddh_event_t**>,
    [](void* h, ddh_event_t* event) noexcept {
      if (const Device* d = open_device(h, nullptr)) d->streams().event_destroy(d->context(), event);
    },
    stream_call<&ddh_stream::record, ddh_event_t*, ddh_stream_t*>,
    stream_call<&ddh_stream::wait, ddh_stream_t*, ddh_event_t*>,
    stream_call<&ddh_stream::synchronize, ddh_stream_t*>,
    [](void* h, ddh_stream_t* stream) noexcept -> void* {
      const Device* d = open_device(h, nullptr);
      return d == nullptr ? nullptr : d->streams().native(d->context(), stream);
    },
    stream_call<&ddh_stream::run, ddh_stream_t*, ddh_stream_fn, void*, const ddh_access*, uint32_t, const char*>,
    stream_call<&ddh_stream::touch, const ddh_access*, uint32_t, const char*>,
};

const ddh_copy kCopyTable = {
    sizeof(ddh_copy),
    0,
    forward<ddh_copy, &Device::copies, &ddh_copy::copy, void*, int32_t, const void*, int32_t, uint64_t, ddh_stream_t*>,
};

const ddh_flatops kFlatopsTable = {
    sizeof(ddh_flatops),
    0,
    flat_call<&ddh_flatops::fill, void*, int32_t, uint64_t, double, ddh_stream_t*>,
    flat_call<&ddh_flatops::cast, void*, int32_t, const void*, int32_t, uint64_t, ddh_stream_t*>,
    flat_call<&ddh_flatops::scale, float*, uint64_t, double, ddh_stream_t*>,
    flat_call<&ddh_flatops::add, float*, const float*, uint64_t, ddh_stream_t*>,
    flat_call<&ddh_flatops::sum_of_squares, const float*, uint64_t, double*, ddh_stream_t*>,
    flat_call<&ddh_flatops::any_nonfinite, const float*, uint64_t, int32_t*, ddh_stream_t*>,
};

}  // namespace ddhost::detail
