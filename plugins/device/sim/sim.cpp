// SPDX-License-Identifier: Apache-2.0
//
// sim: a device for tests on any machine. It has its own memory with a capacity, and streams with delays. It detects
// synchronization mistakes that a GPU often tolerates.
//
//   memory      host pages up to device.capacity_bytes; new blocks contain signalling NaNs, released ones are poisoned
//               and kept in quarantine, to detect late writes
//   streams     one thread each; device.delay_us and device.jitter_us before each piece of work
//   checks      (device.check) order between streams, use after release, ends of blocks, kinds of memory of copies. All
//               but late writes are checked when work is queued, so a mistake is found in every run
//
// There are no native kernels: code that computes declares it with ddh_stream.run.
#include "context.hpp"
#include "ddh/kind/device.h"
#include "ddh/sdk/options.hpp"
#include "flat.hpp"

namespace sim {
namespace {

using ddh::Accesses;
using ddh::guard;

Context& context_of(void* h) { return *static_cast<Context*>(h); }
Queue* queue_of(ddh_stream* stream) { return reinterpret_cast<Queue*>(stream); }
Event& event_of(ddh_event* event) { return *reinterpret_cast<Event*>(event); }

Accesses list_of(const ddh_access* accesses, uint32_t n) {
  Accesses out;
  for (uint32_t i = 0; i < n; ++i) {
    const ddh_access& a = accesses[i];
    if ((a.mode & DDH_ACCESS_READ) != 0) out.reads(a.data, a.bytes);
    if ((a.mode & DDH_ACCESS_WRITE) != 0) out.writes(a.data, a.bytes);
  }
  return out;
}

const ddh_stream_api kStreams = {
    sizeof(ddh_stream_api),
    0,
    [](void* h, const char* name, ddh_stream** out, ddh_err* err) noexcept {
      return guard(err, [&] { *out = reinterpret_cast<ddh_stream*>(context_of(h).create_stream(name)); });
    },
    [](void* h, ddh_stream* stream) noexcept {
      guard(nullptr, [&] { context_of(h).destroy_stream(queue_of(stream)); });
    },
    [](void*, ddh_event** out, ddh_err* err) noexcept {
      return guard(err, [&] { *out = reinterpret_cast<ddh_event*>(std::make_unique<Event>().release()); });
    },
    [](void*, ddh_event* event) noexcept {
      if (event != nullptr) std::unique_ptr<Event>(&event_of(event)).reset();
    },
    [](void* h, ddh_event* event, ddh_stream* stream, ddh_err* err) noexcept {
      return guard(err, [&] { context_of(h).record(event_of(event), queue_of(stream)); });
    },
    [](void* h, ddh_stream* stream, ddh_event* event, ddh_err* err) noexcept {
      return guard(err, [&] { context_of(h).wait(queue_of(stream), event_of(event)); });
    },
    [](void* h, ddh_stream* stream, ddh_err* err) noexcept {
      return guard(err, [&] { context_of(h).synchronize(queue_of(stream)); });
    },
    [](void*, ddh_stream*) noexcept -> void* { return nullptr; },
    [](void* h, ddh_stream* stream, ddh_stream_fn fn, void* arg, const ddh_access* accesses, uint32_t n,
       const char* name, ddh_err* err) noexcept {
      return guard(err, [&] {
        context_of(h).submit(queue_of(stream), name, list_of(accesses, n), [fn, arg] { ddh::call(fn, arg); });
      });
    },
    [](void* h, const ddh_access* accesses, uint32_t n, const char* name, ddh_err* err) noexcept {
      return guard(err, [&] { context_of(h).touch(list_of(accesses, n), name); });
    },
    nullptr,  // no graphs
    nullptr,
    nullptr,
    nullptr,
};

const ddh_copy_api kCopy = {
    sizeof(ddh_copy_api),
    0,
    [](void* h, void* dst, int32_t dst_memory, const void* src, int32_t src_memory, uint64_t bytes, ddh_stream* stream,
       ddh_err* err) noexcept {
      return guard(err, [&] { context_of(h).copy(dst, dst_memory, src, src_memory, bytes, queue_of(stream)); });
    },
};

const ddh_flatops_api kFlatops = {
    sizeof(ddh_flatops_api),
    0,
    [](void* h, void* dst, int32_t dtype, uint64_t numel, double value, ddh_stream* s, ddh_err* err) noexcept {
      return guard(err, [&] {
        context_of(h).submit_flat(queue_of(s), "fill", Accesses().writes(dst, numel * ddh_dtype_bytes(dtype)),
                                  flat::fill(dst, dtype, numel, value));
      });
    },
    [](void* h, void* dst, int32_t dst_dtype, const void* src, int32_t src_dtype, uint64_t numel, ddh_stream* s,
       ddh_err* err) noexcept {
      return guard(err, [&] {
        const uint64_t dst_bytes = numel * ddh_dtype_bytes(dst_dtype), src_bytes = numel * ddh_dtype_bytes(src_dtype);
        context_of(h).submit_flat(queue_of(s), "cast", Accesses().reads(src, src_bytes).writes(dst, dst_bytes),
                                  flat::cast(dst, dst_dtype, src, src_dtype, numel));
      });
    },
    [](void* h, float* dst, uint64_t numel, double factor, ddh_stream* s, ddh_err* err) noexcept {
      return guard(err, [&] {
        context_of(h).submit_flat(queue_of(s), "scale", Accesses().updates(dst, numel * sizeof(float)),
                                  flat::scale(dst, numel, static_cast<float>(factor)));
      });
    },
    [](void* h, float* dst, const float* src, uint64_t numel, ddh_stream* s, ddh_err* err) noexcept {
      return guard(err, [&] {
        const uint64_t bytes = numel * sizeof(float);
        context_of(h).submit_flat(queue_of(s), "add", Accesses().reads(src, bytes).updates(dst, bytes),
                                  flat::add(dst, src, numel));
      });
    },
    nullptr,
    nullptr,
};

class Sim final : public ddh::Instance {
 public:
  explicit Sim(const ddh_create& create)
      : Instance(create),
        settings_{
            static_cast<uint64_t>(host.i64("device.capacity_bytes")),
            static_cast<uint64_t>(host.i64("device.quarantine_bytes")),
            {host.i64("device.delay_us"), host.i64("device.jitter_us"), static_cast<uint64_t>(host.i64("device.seed"))},
            host.flag("device.check")} {}

  Context* open(int32_t index) const {
    if (index != 0) ddh::fail(DDH_UNAVAILABLE, "there is one device 'sim', with index 0, not ", index);
    return std::make_unique<Context>(settings_,
                                     [this](const std::string& sentence) { host.log(DDH_LOG_ERROR, sentence); })
        .release();
  }
  [[nodiscard]] const void* interface(std::string_view id) const override;

 private:
  const Settings settings_;
};

const void* Sim::interface(std::string_view id) const {
  static const ddh_device_api table = {
      sizeof(ddh_device_api),
      0,
      [](ddh_inst*, int32_t* out, ddh_err*) noexcept -> ddh_rc {
        *out = 1;
        return DDH_OK;
      },
      [](ddh_inst* i, int32_t index, void** context, ddh_err* err) noexcept {
        return guard(err, [&] { *context = ddh::self_as<Sim>(i).open(index); });
      },
      [](ddh_inst*, void* context, ddh_device_info* out, ddh_err* err) noexcept {
        return guard(err, [&] {
          const ddh_device_info mine{sizeof(ddh_device_info),
                                     0,
                                     context_of(context).capacity_bytes(),
                                     context_of(context).free_bytes(),
                                     "sim",
                                     "",
                                     {}};
          ddh::copy_out(mine, *out);
        });
      },
      [](ddh_inst*, void* context) noexcept { std::unique_ptr<Context>(&context_of(context)).reset(); },
      [](void* context, const ddh_alloc_args* args, void** out, ddh_err* err) noexcept {
        return guard(err, [&] { *out = context_of(context).allocate(ddh::copy_of(args)); });
      },
      [](void* context, void* p, int32_t) noexcept { guard(nullptr, [&] { context_of(context).release(p); }); },
      &kStreams,
      &kCopy,
      &kFlatops,
      nullptr,
      nullptr,
  };
  return id == DDH_DEVICE_IFACE ? &table : nullptr;
}

constexpr ddh::Option kOptions[] = {
    {"capacity_bytes", "integer", "1073741824", R"("minimum": 1, "x-unit": "bytes")",
     "memory of the device, for each rank"},
    {"delay_us", "integer", "20", R"("minimum": 0, "maximum": 10000000, "x-unit": "microseconds")",
     "pause before each piece of work on a stream"},
    {"jitter_us", "integer", "0", R"("minimum": 0, "maximum": 10000000, "x-unit": "microseconds")",
     "largest random addition to each pause"},
    {"seed", "integer", "0", ddh::kAtLeast0, "seed of the jitter"},
    {"check", "boolean", "true", "",
     "detect unordered work, use after release, accesses beyond a block, wrong kinds of memory"},
    {"quarantine_bytes", "integer", "16777216", R"("minimum": 0, "x-unit": "bytes")",
     "released memory that is checked for late writes"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, DDH_LOG_IFACE, nullptr};

}  // namespace
}  // namespace sim

DDH_CXX_PLUGIN(sim::Sim, device, "sim", "0.1.0", "a device for tests: separate memory, delayed streams, checks",
               ddh::kSchemaOf<sim::kOptions>, sim::kNeeds, DDH_CAP_IN_PROCESS | DDH_CAP_HOST_REACHABLE);
