// SPDX-License-Identifier: Apache-2.0
//
// cpu: the built-in device. Its memory is host memory, and every stream runs inline.
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string_view>

#include "ddh/kind/device.h"
#include "ddh/sdk/pages.hpp"
#include "ddh/sdk/plugin.hpp"
#include "flatops.hpp"

namespace cpu {
namespace {

using ddh::guard;
using ddh::Pages;

// Inline work is done when its call returns, so handles only need to be non-NULL.
const ddh_stream_api kStreams = {
    sizeof(ddh_stream_api),
    0,
    [](void* h, const char*, ddh_stream** out, ddh_err*) noexcept -> ddh_rc {
      *out = reinterpret_cast<ddh_stream*>(h);
      return DDH_OK;
    },
    [](void*, ddh_stream*) noexcept {},
    [](void* h, ddh_event** out, ddh_err*) noexcept -> ddh_rc {
      *out = reinterpret_cast<ddh_event*>(h);
      return DDH_OK;
    },
    [](void*, ddh_event*) noexcept {},
    [](void*, ddh_event*, ddh_stream*, ddh_err*) noexcept -> ddh_rc { return DDH_OK; },
    [](void*, ddh_stream*, ddh_event*, ddh_err*) noexcept -> ddh_rc { return DDH_OK; },
    [](void*, ddh_stream*, ddh_err*) noexcept -> ddh_rc { return DDH_OK; },
    [](void*, ddh_stream*) noexcept -> void* { return nullptr; },
    [](void*, ddh_stream*, ddh_stream_fn fn, void* arg, const ddh_access*, uint32_t, const char*,
       ddh_err* err) noexcept -> ddh_rc { return fn(arg, err); },
    [](void*, const ddh_access*, uint32_t, const char*, ddh_err*) noexcept -> ddh_rc { return DDH_OK; },
    nullptr,  // no graphs
    nullptr,
    nullptr,
    nullptr,
};

const ddh_copy_api kCopy = {
    sizeof(ddh_copy_api),
    0,
    [](void*, void* dst, int32_t, const void* src, int32_t, uint64_t bytes, ddh_stream*, ddh_err*) noexcept -> ddh_rc {
      if (bytes > 0) std::memcpy(dst, src, bytes);
      return DDH_OK;
    },
};

Pages& pages_of(void* context) { return *static_cast<Pages*>(context); }

ddh_rc open(ddh_inst*, int32_t index, void** context, ddh_err* err) noexcept {
  return guard(err, [&] {
    if (index != 0) ddh::fail(DDH_UNAVAILABLE, "there is one device 'cpu', with index 0, not ", index);
    *context = std::make_unique<Pages>().release();
  });
}

ddh_rc info(ddh_inst*, void*, ddh_device_info* out, ddh_err* err) noexcept {
  return guard(err, [&] {
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const ddh_device_info mine{sizeof(ddh_device_info),
                               0,
                               page * static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)),
                               page * static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)),
                               "cpu",
                               "",
                               {}};
    ddh::copy_out(mine, *out);
  });
}

const ddh_device_api& table() {
  static const ddh_device_api device = {
      sizeof(ddh_device_api),
      0,
      [](ddh_inst*, int32_t* out, ddh_err*) noexcept -> ddh_rc {
        *out = 1;
        return DDH_OK;
      },
      open,
      info,
      [](ddh_inst*, void* context) noexcept { std::unique_ptr<Pages>(&pages_of(context)).reset(); },
      [](void* context, const ddh_alloc_args* args, void** out, ddh_err* err) noexcept {
        return guard(err, [&] { *out = pages_of(context).allocate(ddh::copy_of(args).bytes); });
      },
      [](void* context, void* p, int32_t) noexcept { guard(nullptr, [&] { pages_of(context).release(p); }); },
      &kStreams,
      &kCopy,
      &flatops(),
      nullptr,
      nullptr,
  };
  return device;
}

constexpr ddh_build kBuild = DDH_BUILD_INIT;
constexpr ddh_desc kDesc = {sizeof(ddh_desc),
                            DDH_KIND_DEVICE,
                            "cpu",
                            DDHOST_VERSION,
                            "the CPU, with host memory and inline streams",
                            nullptr,
                            nullptr,
                            nullptr,
                            DDH_CAP_IN_PROCESS | DDH_CAP_HOST_MEMORY,
                            0,
                            0};
constexpr const ddh_desc* kDescs[] = {&kDesc};

constexpr ddh_module kModule = {
    sizeof(ddh_module),
    1,
    kDescs,
    &kBuild,
    // The device has no state outside its contexts, so its handle only needs to be non-NULL.
    [](const ddh_create* args, ddh_inst** out, ddh_err*) noexcept -> ddh_rc {
      *out = reinterpret_cast<ddh_inst*>(const_cast<ddh_create*>(args));
      return DDH_OK;
    },
    [](ddh_inst*, const char* id) noexcept -> const void* {
      return std::string_view(id) == DDH_DEVICE_IFACE ? &table() : nullptr;
    },
    [](ddh_inst*) noexcept {},
};

}  // namespace
}  // namespace cpu

DDH_PLUGIN(cpu::kModule, "device:cpu");
