// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/device.hpp: the device on which a model's tensors are, and a call into LibTorch on it.
//
//   device_(host, options.text("operators"))                       // in the constructor
//   const ddh::TorchCall call(host, device_, warnings_, c.stream); // in every function that uses tensors
//   at::Tensor y = at::empty({N, C}, device_.options(at::kFloat));
//
// On a GPU, LibTorch queues its work on the stream of the host's device, so it is in order with that of strategies and
// optimizers. Memory of the GPU must not be read by pointers: by_operators() tells whether that rule holds.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddh/sdk/kernels/dropout.hpp"
#include "ddh/sdk/options.hpp"
#include "ddh/sdk/plugin.hpp"
#include "ddh/sdk/torch/activations.hpp"
#include "ddh/sdk/torch/cuda_library.hpp"
#include "ddh/sdk/torch/warnings.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// The native APIs of a model whose tensors are on a TorchDevice, for DDH_CXX_PLUGIN.
inline constexpr const char* kTorchApis[] = {"cuda", nullptr};

inline constexpr Option kOperatorsOption = {
    .name = "operators",
    .type = "string",
    .default_value = R"("auto")",
    .rules = R"("enum": ["auto", "torch"], "x-affects": "numerics")",
    .description =
        "auto: on the CPU code for processors, on a GPU operators of LibTorch; torch: these on the CPU too, to "
        "compare with a GPU",
};

namespace detail {
// What kernels of the SDK need inside of a TorchCall on a GPU.
struct KernelPlace {
  const Host* host = nullptr;
  ddh_stream* stream = nullptr;
  ddh_kernel* drop_elements = nullptr;  // nullptr: the SDK has no image of it
};
inline KernelPlace& kernel_place() {
  static thread_local KernelPlace place;
  return place;
}

inline bool& operators_alone() {
  static thread_local bool alone = false;
  return alone;
}

// The ranks of this process that compute on a GPU. LibTorch counts the GPU's memory for all of them together.
class RanksOfGpu {
 public:
  explicit RanksOfGpu(c10::DeviceIndex gpu) {
    static std::mutex mutex;
    static std::map<c10::DeviceIndex, std::weak_ptr<std::atomic<int>>> by_gpu;
    const std::lock_guard lock(mutex);
    joined_ = by_gpu[gpu].lock();
    if (joined_ == nullptr) by_gpu[gpu] = joined_ = std::make_shared<std::atomic<int>>(0);
    ++*joined_;
  }
  // Whether several have joined since nobody was there.
  [[nodiscard]] bool are_several() const { return *joined_ > 1; }

 private:
  std::shared_ptr<std::atomic<int>> joined_;  // how many have joined since nobody was there
};
}  // namespace detail

// Whether x may be accessed only by operators of LibTorch, because it is not in host memory or the run asks for it.
inline bool by_operators(const at::Tensor& x) { return detail::operators_alone() || !x.device().is_cpu(); }

// Memory of `device` as a tensor. On LibTorch's device `meta`, which tests use, it has a shape alone.
inline at::Tensor tensor_at(void* data, at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type,
                            at::Device device) {
  const at::TensorOptions options = at::TensorOptions(type).device(device);
  if (device.is_cpu()) return at::from_blob(data, sizes, strides, options);
  if (device.is_meta()) return at::empty_strided(sizes, strides, options);
  return at::for_blob(data, sizes).strides(strides).options(options).target_device(device).make_tensor();
}

// Row-major.
inline at::Tensor tensor_at(void* data, at::IntArrayRef sizes, at::ScalarType type, at::Device device) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<int64_t>(1, sizes[i]);
  return tensor_at(data, sizes, strides, type, device);
}

class TorchDevice {
 public:
  // `operators`: the value of kOperatorsOption; tests also give "meta", to run a model on shapes alone. Throws Error if
  // the run's device is a GPU and LibTorch can't use it, or if LibTorch does not know the device.
  explicit TorchDevice(const Host& host, std::string_view operators = "auto") : operators_alone_(operators != "auto") {
    if (operators == "meta") where_ = at::kMeta;
    if (host.stream == nullptr || host.stream->native == nullptr) return;
    if (host.stream->native(host.h, nullptr) == nullptr) return;  // work is done when a call returns
    const char* const format = host.kernels != nullptr ? host.kernels->format(host.h) : nullptr;
    if (format == nullptr || std::string_view(format) != "ptx")
      fail(DDH_FAILED_PRECONDITION, "LibTorch computes on the CPU and on NVIDIA GPUs, not on the run's device; choose ",
           "--device cpu or --device cuda");
    use_cuda(host);
  }

  [[nodiscard]] at::Device where() const { return where_; }
  [[nodiscard]] bool is_cuda() const { return where_.is_cuda(); }
  // Tensors are accessed by operators alone.
  [[nodiscard]] bool by_operators() const { return operators_alone_; }
  [[nodiscard]] at::TensorOptions options(at::ScalarType type) const { return at::TensorOptions(type).device(where_); }
  // LibTorch's memory on it is this rank's alone, so it can be counted.
  [[nodiscard]] bool counts() const { return is_cuda() && !ranks_->are_several(); }
  // The kernel of dropout (ddh/sdk/kernels/dropout.hpp); nullptr: there is none.
  [[nodiscard]] ddh_kernel* drop_elements() const { return drop_elements_; }
  // For messages: "cuda:0".
  [[nodiscard]] std::string text() const { return where_.str(); }

 private:
  void use_cuda(const Host& host) {
    try {
      load_torch_cuda();
      // The plugin of the device and LibTorch share the GPU's primary context, and so its addresses.
      const Buffer probe(host, DDH_TAG_ACT, 1, "a place on the GPU", 0);
      where_ = at::detail::getCUDAHooks().getDeviceFromPtr(probe.data());
    } catch (const c10::Error& e) {
      fail(DDH_UNAVAILABLE, "LibTorch can't use the GPU (", first_line(e.what_without_backtrace()),
           "); choose --device cpu");
    }
    operators_alone_ = true;
    if (const char* const image = dropout_image())
      call(host.kernels->find, host.h, image, DropElements::kName, sizeof(DropElements), &drop_elements_);
    ranks_.emplace(where_.index());
    if (!counts())
      host.log(DDH_LOG_WARN, "ranks of one process share ", text(), ", where LibTorch counts memory for all of them; ",
               "memory of the GPU is missing in the activations; choose --comm shm to count them");
  }

  at::Device where_ = at::kCPU;
  bool operators_alone_;
  ddh_kernel* drop_elements_ = nullptr;
  std::optional<detail::RanksOfGpu> ranks_;  // on a GPU
};

// A call into LibTorch: its work is queued on `stream`, its memory is counted for the rank, and its warnings go to
// `warnings`.
class TorchCall {
 public:
  TorchCall(const Host& host, const TorchDevice& device, TorchWarnings& warnings, ddh_stream* stream = nullptr)
      : scope_(host), warnings_(&warnings), host_(host), device_(device), operators_(device.by_operators()) {
    if (!device.is_cuda()) return;
    const auto native = reinterpret_cast<int64_t>(host.stream->native(host.h, stream));
    stream_.reset_stream(c10::Stream::unpack3(native, device.where().index(), at::kCUDA));
    detail::kernel_place() = {&host, stream, device.drop_elements()};
    if (!device.counts()) return;
    c10::getDeviceAllocator(at::kCUDA)->resetPeakStats(device.where().index());
    bytes_before_ = allocated().current;
  }
  TorchCall(const TorchCall&) = delete;
  TorchCall& operator=(const TorchCall&) = delete;
  ~TorchCall() {
    detail::kernel_place() = place_before_;
    if (!bytes_before_) return;
    try {
      const auto bytes = allocated();
      host_.alloc->account(host_.h, DDH_TAG_ACT, bytes.peak - *bytes_before_);
      host_.alloc->account(host_.h, DDH_TAG_ACT, bytes.current - bytes.peak);
    } catch (const c10::Error&) {  // after a fault of the GPU the run ends
    }
  }

 private:
  // Sets detail::operators_alone() for a scope.
  class OperatorsAlone {
   public:
    explicit OperatorsAlone(bool alone) : before_(detail::operators_alone()) { detail::operators_alone() = alone; }
    OperatorsAlone(const OperatorsAlone&) = delete;
    OperatorsAlone& operator=(const OperatorsAlone&) = delete;
    ~OperatorsAlone() { detail::operators_alone() = before_; }

   private:
    const bool before_;
  };

  // LibTorch's caching allocator serves every operator, workspaces included, in the order of the stream.
  [[nodiscard]] c10::CachingAllocator::Stat allocated() const {
    const auto stats = c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(device_.where().index());
    return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  }

  const ActivationScope scope_;
  const c10::WarningUtils::WarningHandlerGuard warnings_;
  const Host& host_;
  const TorchDevice& device_;
  const OperatorsAlone operators_;
  c10::OptionalStreamGuard stream_;
  const detail::KernelPlace place_before_ = detail::kernel_place();
  std::optional<int64_t> bytes_before_;  // none: not counted
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
