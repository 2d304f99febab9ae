// SPDX-License-Identifier: Apache-2.0
//
// cuda: NVIDIA GPUs through the driver API. The driver is opened when a device is counted or opened, so the plugin loads
// everywhere, and without a driver a run is refused with one sentence.
//
//   memory      cuMemAlloc, and page-locked memory of the host
//   streams     streams of the GPU; the default stream is an own one
//   operations  flat operations as kernels, with the bits of the CPU (a NaN may have another payload)
//   kernels     PTX of other plugins (ddh.kernels)
//
// Has run on the stand-in of tests/standin. Has not run on a GPU.
#include <unistd.h>

#include <exception>

#include "context.hpp"
#include "ddh/kind/device.h"
#include "ddh/sdk/options.hpp"
#include "flat.hpp"

namespace cuda DDH_HIDDEN {
namespace {

using ddh::guard;

Context& context_of(void* h) { return *static_cast<Context*>(h); }
CUevent event_of(ddh_event* event) { return reinterpret_cast<CUevent>(event); }

const ddh_stream_api kStreams = {
    sizeof(ddh_stream_api),
    0,
    [](void* h, const char*, ddh_stream** out, ddh_err* err) noexcept {
      return guard(err, [&] { *out = reinterpret_cast<ddh_stream*>(context_of(h).create_stream()); });
    },
    [](void* h, ddh_stream* stream) noexcept {
      if (stream != nullptr) guard(nullptr, [&] { context_of(h).destroy_stream(context_of(h).stream_of(stream)); });
    },
    [](void* h, ddh_event** out, ddh_err* err) noexcept {
      return guard(err, [&] { *out = reinterpret_cast<ddh_event*>(context_of(h).create_event()); });
    },
    [](void* h, ddh_event* event) noexcept {
      if (event != nullptr) guard(nullptr, [&] { context_of(h).destroy_event(event_of(event)); });
    },
    [](void* h, ddh_event* event, ddh_stream* stream, ddh_err* err) noexcept {
      return guard(err, [&] { context_of(h).record(event_of(event), context_of(h).stream_of(stream)); });
    },
    [](void* h, ddh_stream* stream, ddh_event* event, ddh_err* err) noexcept {
      return guard(err, [&] { context_of(h).wait(context_of(h).stream_of(stream), event_of(event)); });
    },
    [](void* h, ddh_stream* stream, ddh_err* err) noexcept {
      return guard(err, [&] { context_of(h).synchronize(context_of(h).stream_of(stream)); });
    },
    [](void* h, ddh_stream* stream) noexcept -> void* { return context_of(h).stream_of(stream); },
    [](void* h, ddh_stream* stream, ddh_stream_fn fn, void* arg, const ddh_access* accesses, uint32_t n,
       const char* name, ddh_err* err) noexcept {
      return guard(err, [&] { context_of(h).run(context_of(h).stream_of(stream), fn, arg, accesses, n, name); });
    },
    [](void*, const ddh_access*, uint32_t, const char*, ddh_err*) noexcept -> ddh_rc { return DDH_OK; },
    [](void* h, ddh_stream* stream, const char* name, ddh_err* err) noexcept {
      return guard(err, [&] {
        if (context_of(h).has_graphs()) load_flat_kernels(context_of(h));
        context_of(h).begin_capture(context_of(h).stream_of(stream), name);
      });
    },
    [](void* h, ddh_stream* stream, ddh_graph** out, ddh_err* err) noexcept {
      return guard(err, [&] {
        CUstream const mine = context_of(h).stream_of(stream);
        if (out == nullptr) return context_of(h).discard_capture(mine);
        *out = reinterpret_cast<ddh_graph*>(context_of(h).end_capture(mine));
      });
    },
    [](void* h, ddh_graph* graph, ddh_stream* stream, ddh_err* err) noexcept {
      return guard(err, [&] {
        context_of(h).launch_graph(reinterpret_cast<CUgraphExec>(graph), context_of(h).stream_of(stream));
      });
    },
    [](void* h, ddh_graph* graph) noexcept {
      if (graph != nullptr) guard(nullptr, [&] { context_of(h).destroy_graph(reinterpret_cast<CUgraphExec>(graph)); });
    },
};

const ddh_copy_api kCopy = {
    sizeof(ddh_copy_api),
    0,
    [](void* h, void* dst, int32_t dst_memory, const void* src, int32_t src_memory, uint64_t bytes, ddh_stream* stream,
       ddh_err* err) noexcept {
      return guard(
          err, [&] { context_of(h).copy(dst, dst_memory, src, src_memory, bytes, context_of(h).stream_of(stream)); });
    },
};

const ddh_kernels_api kKernels = {
    sizeof(ddh_kernels_api),
    0,
    [](void*) noexcept -> const char* { return "ptx"; },
    [](void* h, const void* image, const char* name, uint64_t arg_bytes, ddh_kernel** out, ddh_err* err) noexcept {
      return guard(err, [&] {
        const Kernel& found = context_of(h).find(static_cast<const char*>(image), name, arg_bytes);
        *out = reinterpret_cast<ddh_kernel*>(const_cast<Kernel*>(&found));
      });
    },
    [](void* h, ddh_kernel* kernel, uint32_t blocks, uint32_t threads, const void* arg, const ddh_access*, uint32_t,
       ddh_stream* stream, ddh_err* err) noexcept {
      return guard(err, [&] {
        context_of(h).launch(*reinterpret_cast<const Kernel*>(kernel), blocks, threads, arg,
                             context_of(h).stream_of(stream));
      });
    },
};

class Cuda final : public ddh::Instance {
 public:
  explicit Cuda(const ddh_create& create) : Instance(create), file_(options.text("driver")) {}

  const Driver& driver() {
    const std::lock_guard lock(mutex_);
    if (!driver_) driver_ = Driver::open(file_);
    return *driver_;
  }
  // The last rank that opens GPU 0 speaks for all.
  std::unique_ptr<Context> open(int32_t index) {
    if (index == 0 && options.flag("graphs") && host.kv != nullptr)
      ddh::call(host.kv->set, host.h, "speaker", &me_, sizeof me_);
    return std::make_unique<Context>(driver(), Context::Settings{options.text("nvml"), options.flag("graphs")}, index);
  }
  // A run that has failed is closed while its error is thrown; it may have had no time to capture.
  void close(const std::unique_ptr<Context> context) noexcept {
    if (!context->has_graphs() || context->has_captured() || std::uncaught_exceptions() > 0) return;
    guard(nullptr, [&] {
      if (!speaks()) return;
      host.log(DDH_LOG_INFO, "device.graphs=true changed nothing: no plugin of this run captured a graph");
    });
  }
  [[nodiscard]] const void* interface(std::string_view id) const override;

 private:
  struct Identity {
    int64_t process;
    const Cuda* instance;
    bool operator==(const Identity&) const = default;
  };
  [[nodiscard]] bool speaks() const {
    Identity speaker{};
    uint64_t bytes = sizeof speaker;
    if (host.kv != nullptr) ddh::call(host.kv->get, host.h, "speaker", &speaker, &bytes, 0U);
    return speaker == me_;
  }

  const std::string file_;
  const Identity me_{getpid(), this};
  std::mutex mutex_;
  std::optional<Driver> driver_;
};

const void* Cuda::interface(std::string_view id) const {
  static const ddh_device_api table = {
      sizeof(ddh_device_api),
      0,
      [](ddh_inst* i, int32_t* out, ddh_err* err) noexcept {
        return guard(err, [&] {
          const Driver& driver = ddh::self_as<Cuda>(i).driver();
          driver.check(driver.cuDeviceGetCount(out), "cuDeviceGetCount");
        });
      },
      [](ddh_inst* i, int32_t index, void** context, ddh_err* err) noexcept {
        return guard(err, [&] { *context = ddh::self_as<Cuda>(i).open(index).release(); });
      },
      [](ddh_inst*, void* context, ddh_device_info* out, ddh_err* err) noexcept {
        return guard(err, [&] { ddh::copy_out(context_of(context).info(), *out); });
      },
      [](ddh_inst* i, void* context) noexcept {
        ddh::self_as<Cuda>(i).close(std::unique_ptr<Context>(&context_of(context)));
      },
      [](void* context, const ddh_alloc_args* args, void** out, ddh_err* err) noexcept {
        return guard(err, [&] { *out = context_of(context).allocate(ddh::copy_of(args)); });
      },
      [](void* context, void* p, int32_t memory) noexcept {
        guard(nullptr, [&] { context_of(context).release(p, memory); });
      },
      &kStreams,
      &kCopy,
      &flatops(),
      &kKernels,
      [](void* context, ddh_device_usage* out, ddh_err* err) noexcept {
        return guard(err, [&] { ddh::copy_out(context_of(context).usage(), *out); });
      },
  };
  return id == DDH_DEVICE_IFACE ? &table : nullptr;
}

constexpr ddh::Option kOptions[] = {
    {"driver", "string", R"("libcuda.so.1")", "", "library of the CUDA driver; tests name another one"},
    {"graphs", "boolean", "false", "",
     "draft: a model that can (kernel_toy) replays the kernels of a unit as one CUDA graph; the bits stay the same"},
    {"nvml", "string", R"("libnvidia-ml.so.1")", "",
     "library that measures the GPU (load, memory, temperature) for the metrics; without it they are left out"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};

}  // namespace
}  // namespace DDH_HIDDEN

DDH_CXX_PLUGIN(cuda::Cuda, device, "cuda", "0.1.0", "NVIDIA GPUs (not run on one yet)", ddh::kSchemaOf<cuda::kOptions>,
               cuda::kNeeds, DDH_CAP_IN_PROCESS);
