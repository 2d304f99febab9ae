// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/transfers.hpp: a model's batches on their way to the device, and the results of its micro-batches on their
// way back, through pinned memory. Results are read when the host has waited for the device (ddh_model_api.metrics). On
// the CPU nothing is copied.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "ddh/sdk/memory/staging.hpp"
#include "ddh/sdk/torch/device.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class Transfers {
 public:
  Transfers(const Host& host, const TorchDevice& device) : host_(host), device_(device) {}
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // Copies of tensors of the host, on the device after the work queued on `stream`. Undefined ones stay undefined. The
  // originals may end at once.
  std::vector<at::Tensor> upload(const std::vector<at::Tensor>& tensors, ddh_stream* stream) {
    if (device_.where().is_cpu()) return tensors;
    std::vector<at::Tensor> out, rows;
    std::vector<PinnedUploads::Part> parts;
    for (const at::Tensor& from : tensors) {
      out.push_back(from.defined() ? at::empty(from.sizes(), device_.options(from.scalar_type())) : at::Tensor());
      if (!device_.is_cuda() || !from.defined() || from.numel() == 0) continue;
      rows.push_back(from.contiguous());
      parts.push_back({out.back().mutable_data_ptr(), rows.back().const_data_ptr(), rows.back().nbytes()});
    }
    if (parts.empty()) return out;
    if (uploads_ == nullptr) uploads_ = std::make_unique<PinnedUploads>(host_);
    uploads_->queue(parts, stream);
    return out;
  }

  // Queues the way back of a micro-batch's values, behind the work queued on `stream` so far.
  void send(int32_t micro_batch, const at::Tensor& values, ddh_stream* stream) {
    Result& result = results_[micro_batch];
    result.values = values.contiguous();
    if (!device_.is_cuda() || values.numel() == 0) return;
    if (result.pinned == nullptr) result.pinned = std::make_unique<PinnedResult>(host_);
    result.pinned->send(result.values.const_data_ptr(), result.values.nbytes(), stream);
  }

  // The values that were sent, on the host: the same at every call until the next send or discard. Undefined: nothing was
  // sent. The streams of sends and uploads were synchronized since. On the device `meta` all their bits are 1, which is NaN.
  at::Tensor read(int32_t micro_batch) {
    const auto found = results_.find(micro_batch);
    if (found == results_.end() || !found->second.values.defined()) return {};
    Result& result = found->second;
    if (result.values.is_cpu()) return result.values;
    if (uploads_ != nullptr) uploads_->synchronized();
    const at::Tensor out = at::empty(result.values.sizes(), result.values.scalar_type());
    if (device_.is_cuda() && out.numel() > 0)
      std::memcpy(out.mutable_data_ptr(), result.pinned->read(), out.nbytes());
    else
      std::memset(out.mutable_data_ptr(), 0xff, out.nbytes());
    return result.values = out;
  }

  // Forgets what was sent for a micro-batch.
  void discard(int32_t micro_batch) noexcept {
    if (const auto found = results_.find(micro_batch); found != results_.end()) found->second.values = at::Tensor();
  }

 private:
  struct Result {
    at::Tensor values;
    std::unique_ptr<PinnedResult> pinned;  // for the whole run
  };

  const Host& host_;
  const TorchDevice& device_;
  std::unique_ptr<PinnedUploads> uploads_;
  std::map<int32_t, Result> results_;  // by micro-batch
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
