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
// Has run on an H100, and on the stand-in of tests/gpu/standin.
#include <unistd.h>

#include <cstdlib>
#include <exception>

#include "context.hpp"
#include "ddh/sdk/options.hpp"
#include "visible.hpp"

namespace cuda DDH_HIDDEN {
namespace {

class Cuda final : public ddh::Device {
 public:
  explicit Cuda(const ddh_create& create)
      : Device(create, {.sums = true, .graphs = true, .kernels = true, .usage = true, .present = true}),
        file_(options.text("driver")) {}

  int32_t count() override {
    int32_t out = 0;
    driver().check(driver().cuDeviceGetCount(&out), "cuDeviceGetCount");
    return out;
  }
  int32_t present() override { return visible_gpus(gpu_nodes(), std::getenv("CUDA_VISIBLE_DEVICES")); }
  // The last rank that opens GPU 0 speaks for all.
  std::unique_ptr<ddh::OpenDevice> open(int32_t index) override {
    if (index == 0 && options.flag("graphs") && host.kv != nullptr)
      ddh::call(host.kv->set, host.h, "speaker", &me_, sizeof me_);
    return std::make_unique<Context>(driver(), Context::Settings{options.text("nvml"), options.flag("graphs")}, index);
  }
  // A run that has failed is closed while its error is thrown; it may have had no time to capture.
  void close(std::unique_ptr<ddh::OpenDevice> device) noexcept override {
    const auto& context = static_cast<const Context&>(*device);
    if (!context.has_graphs() || context.has_captured() || std::uncaught_exceptions() > 0) return;
    ddh::guard(nullptr, [&] {
      if (!speaks()) return;
      host.log(DDH_LOG_INFO, "device.graphs=true changed nothing: no plugin of this run captured a graph");
    });
  }

 private:
  struct Identity {
    int64_t process;
    const Cuda* instance;
    bool operator==(const Identity&) const = default;
  };
  const Driver& driver() {
    const std::lock_guard lock(mutex_);
    if (!driver_) driver_ = Driver::open(file_);
    return *driver_;
  }
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

constexpr ddh::Option kOptions[] = {
    {"driver", "string", R"("libcuda.so.1")", "", "library of the CUDA driver; tests name another one"},
    {"graphs", "boolean", "false", "",
     "draft: a model that can (kernel_toy) replays the kernels of a unit as one CUDA graph; the bits stay the same"},
    {"nvml", "string", R"("libnvidia-ml.so.1")", "",
     "library that measures the GPU (load, memory, temperature) for the metrics; without it they are left out"},
};
constexpr const char* kNeeds[] = {DDH_CONFIG_IFACE, nullptr};
// A device that is asked whether its GPUs are there has no other ranks.
constexpr const char* kWants[] = {DDH_CONFIG_IFACE, DDH_LOG_IFACE, DDH_METRICS_IFACE, DDH_KV_IFACE, nullptr};
constexpr const char* kApis[] = {"cuda", nullptr};

}  // namespace
}  // namespace DDH_HIDDEN

DDH_CXX_PLUGIN(cuda::Cuda, device, "cuda", "0.1.0", "NVIDIA GPUs", ddh::kSchemaOf<cuda::kOptions>, cuda::kNeeds,
               DDH_CAP_IN_PROCESS, 0, 0, cuda::kApis, cuda::kWants);
