// SPDX-License-Identifier: Apache-2.0
//
// own_memory: a device with memory of its own, of device.capacity_bytes for each rank, and streams that run inline: work
// is done when the call returns. The memory is the machine's, but the host does not know this: it copies what it needs to
// see, as it does on an accelerator. An author of a device replaces the bodies of the functions here.
//
//   ddhost --device ./own_memory.so device.capacity_bytes=100000000
#include <memory>

#include "ddh/kind/device.h"
#include "ddh/sdk/flat.hpp"
#include "ddh/sdk/options.hpp"
#include "memory.hpp"

namespace own_memory {
namespace {

using ddh::guard;

// What `open` returned: one device of one rank. The tables get it as their first argument.
Memory& memory_of(void* context) { return *static_cast<Memory*>(context); }

// A stream that runs inline has nothing to store, so handles only need to be non-NULL.
const ddh_stream_api kStreams = {
    sizeof(ddh_stream_api),
    0,
    [](void* context, const char*, ddh_stream** out, ddh_err*) noexcept -> ddh_rc {
      *out = reinterpret_cast<ddh_stream*>(context);
      return DDH_OK;
    },
    [](void*, ddh_stream*) noexcept {},
    [](void* context, ddh_event** out, ddh_err*) noexcept -> ddh_rc {
      *out = reinterpret_cast<ddh_event*>(context);
      return DDH_OK;
    },
    [](void*, ddh_event*) noexcept {},
    [](void*, ddh_event*, ddh_stream*, ddh_err*) noexcept -> ddh_rc { return DDH_OK; },  // record
    [](void*, ddh_stream*, ddh_event*, ddh_err*) noexcept -> ddh_rc { return DDH_OK; },  // wait
    [](void*, ddh_stream*, ddh_err*) noexcept -> ddh_rc { return DDH_OK; },              // synchronize
    [](void*, ddh_stream*) noexcept -> void* { return nullptr; },                        // no handle of a runtime
    [](void*, ddh_stream*, ddh_stream_fn fn, void* arg, const ddh_access*, uint32_t, const char*,
       ddh_err* err) noexcept -> ddh_rc { return fn(arg, err); },
    [](void*, const ddh_access*, uint32_t, const char*, ddh_err*) noexcept -> ddh_rc { return DDH_OK; },  // touch
    nullptr,                                                                                              // no graphs
    nullptr,
    nullptr,
    nullptr,
};

// The two places where a caller could confuse the host's memory and the device's.
void require_place(const Memory& memory, const void* p, uint64_t bytes, int32_t said, const char* side) {
  if (memory.is_device(p, bytes) == (said == DDH_MEM_DEVICE)) return;
  ddh::fail(DDH_INVALID_ARGUMENT, "a copy of ", bytes, " bytes ", side, " memory that is ",
            said == DDH_MEM_DEVICE ? "not the device's" : "the device's",
            ", against its DDH_MEM_*; state the kind of each pointer, and stay within its block");
}

const ddh_copy_api kCopy = {
    sizeof(ddh_copy_api),
    0,
    [](void* context, void* dst, int32_t dst_memory, const void* src, int32_t src_memory, uint64_t bytes, ddh_stream*,
       ddh_err* err) noexcept {
      return guard(err, [&] {
        if (bytes == 0) return;
        require_place(memory_of(context), dst, bytes, dst_memory, "to");
        require_place(memory_of(context), src, bytes, src_memory, "from");
        std::memcpy(dst, src, bytes);
      });
    },
};

// ddh/sdk/flat.hpp computes with the bits that every device must give.
const ddh_flatops_api kFlatops = {
    sizeof(ddh_flatops_api),
    0,
    [](void*, void* dst, int32_t dtype, uint64_t numel, double value, ddh_stream*, ddh_err* err) noexcept {
      return guard(err, [&] { ddh::flat::fill(dst, dtype, numel, value); });
    },
    [](void*, void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype, uint64_t numel, ddh_stream*,
       ddh_err* err) noexcept { return guard(err, [&] { ddh::flat::cast(dst, dst_dtype, src, src_dtype, numel); }); },
    [](void*, float* dst, uint64_t numel, double factor, ddh_stream*, ddh_err* err) noexcept {
      return guard(err, [&] { ddh::flat::scale(dst, numel, static_cast<float>(factor)); });
    },
    [](void*, float* dst, const float* src, uint64_t numel, ddh_stream*, ddh_err* err) noexcept {
      return guard(err, [&] { ddh::flat::add(dst, src, numel); });
    },
    nullptr,  // exact_squares and ordered_sum: the host computes them from copies
    nullptr,
};

class OwnMemory final : public ddh::Instance {
 public:
  explicit OwnMemory(const ddh_create& create)
      : Instance(create), capacity_bytes_(static_cast<uint64_t>(options.i64("capacity_bytes"))) {}
  [[nodiscard]] const void* interface(std::string_view id) const override;

 private:
  // A missing or wrong device is an error here, not in create: `ddhost list` must work without it.
  [[nodiscard]] std::unique_ptr<Memory> open(int32_t index) const {
    if (index != 0) ddh::fail(DDH_UNAVAILABLE, "there is one device 'own_memory', with index 0, not ", index);
    return std::make_unique<Memory>(capacity_bytes_);
  }

  const uint64_t capacity_bytes_;
};

const void* OwnMemory::interface(std::string_view id) const {
  static const ddh_device_api table = {
      sizeof(ddh_device_api),
      0,
      [](ddh_inst*, int32_t* out, ddh_err*) noexcept -> ddh_rc {
        *out = 1;  // ranks share it: rank r opens device r modulo this number
        return DDH_OK;
      },
      [](ddh_inst* i, int32_t index, void** context, ddh_err* err) noexcept {
        return guard(err, [&] { *context = ddh::self_as<OwnMemory>(i).open(index).release(); });
      },
      [](ddh_inst*, void* context, ddh_device_info* out, ddh_err* err) noexcept {
        return guard(err, [&] {
          const Memory& memory = memory_of(context);
          ddh::copy_out(
              {sizeof(ddh_device_info), 0, memory.capacity_bytes(), memory.free_bytes(), "own_memory", "", {}}, *out);
        });
      },
      [](ddh_inst*, void* context) noexcept { std::unique_ptr<Memory>(&memory_of(context)).reset(); },
      [](void* context, const ddh_alloc_args* args, void** out, ddh_err* err) noexcept {
        return guard(err, [&] { *out = memory_of(context).allocate(ddh::copy_of(args)); });
      },
      [](void* context, void* p, int32_t) noexcept { memory_of(context).release(p); },
      &kStreams,
      &kCopy,
      &kFlatops,
      nullptr,  // no kernels of plugins
      nullptr,  // does not measure itself
  };
  return id == DDH_DEVICE_IFACE ? &table : nullptr;
}

constexpr ddh::Option kOptions[] = {
    {"capacity_bytes", "integer", "1073741824", R"("minimum": 1, "x-unit": "bytes")",
     "memory of the device, for each rank"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace
}  // namespace own_memory

// Without DDH_CAP_HOST_MEMORY: the host reaches device memory through copies. DDH_CAP_HOST_REACHABLE: functions of
// ddh_stream.run may access it, so optimizers without kernels work.
DDH_CXX_PLUGIN(own_memory::OwnMemory, device, "own_memory", "0.1.0", "memory of its own, streams that run inline",
               ddh::kSchemaOf<own_memory::kOptions>, own_memory::kNeeds, DDH_CAP_IN_PROCESS | DDH_CAP_HOST_REACHABLE);
