// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/transfers.hpp: a micro-batch's way to the device and its results' way back, through pinned memory. The
// host waits only where it reads results, and then only for the work before them, not for the backward behind it.
//
// On the CPU nothing is copied. One object serves one micro-batch after another; a model has one for each micro-batch
// that exists at the same time.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <limits>
#include <vector>

#include "ddh/sdk/torch/device.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class Transfers {
 public:
  Transfers(const Host& host, const TorchDevice& device) : host_(host), device_(device) {}
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;
  ~Transfers() {
    if (side_ == nullptr) return;
    host_.stream->destroy(host_.h, side_);  // waits for its work, and so for the uploads before it
    host_.stream->event_destroy(host_.h, done_);
  }

  // Copies of tensors of the host, on the device after the work queued on `stream`. Undefined ones stay undefined. The
  // originals may end at once.
  std::vector<at::Tensor> upload(const std::vector<at::Tensor>& tensors, ddh_stream* stream) {
    if (device_.where().is_cpu()) return tensors;
    if (device_.is_cuda()) begin_upload(tensors, stream);
    std::vector<at::Tensor> out;
    auto* pinned = static_cast<char*>(up_.data());
    for (const at::Tensor& from : tensors) {
      if (!from.defined()) {
        out.emplace_back();
        continue;
      }
      out.push_back(at::empty(from.sizes(), device_.options(from.scalar_type())));
      if (!device_.is_cuda() || from.numel() == 0) continue;
      const at::Tensor rows = from.contiguous();
      std::memcpy(pinned, rows.const_data_ptr(), rows.nbytes());
      call(host_.copy->copy, host_.h, out.back().mutable_data_ptr(), DDH_MEM_DEVICE, pinned, DDH_MEM_PINNED,
           static_cast<uint64_t>(rows.nbytes()), stream);
      pinned += room_of(rows);
    }
    return out;
  }

  // Queues the way back of fp64 values (n), behind the work queued on `stream` so far.
  void send(const at::Tensor& values, ddh_stream* stream) {
    values_ = values;
    if (!device_.is_cuda()) return;
    const uint64_t bytes = values.nbytes();
    begin_side();
    if (down_.bytes() < bytes) down_ = Buffer(host_, DDH_TAG_DATA, bytes, "results", 0, DDH_MEM_PINNED);
    call(host_.stream->record, host_.h, done_, stream);
    call(host_.stream->wait, host_.h, side_, done_);
    call(host_.copy->copy, host_.h, down_.data(), DDH_MEM_PINNED, values.const_data_ptr(), DDH_MEM_DEVICE, bytes,
         side_);
  }

  // The values that were sent; nothing was: none. Waits for them. On the device `meta` they are NaN.
  std::vector<double> read() {
    if (!values_.defined()) return {};
    std::vector<double> out(static_cast<size_t>(values_.numel()), std::numeric_limits<double>::quiet_NaN());
    if (device_.is_cuda()) {
      call(host_.stream->synchronize, host_.h, side_);
      is_uploading_ = false;  // the uploads were queued before
      std::memcpy(out.data(), down_.data(), out.size() * sizeof(double));
    } else if (device_.where().is_cpu()) {
      std::memcpy(out.data(), values_.const_data_ptr<double>(), out.size() * sizeof(double));
    }
    values_ = at::Tensor();
    return out;
  }
  // Forgets values that nobody has read, after an error.
  void discard() noexcept {
    if (!values_.defined()) return;
    ErrorBuffer ignored;
    if (device_.is_cuda()) host_.stream->synchronize(host_.h, side_, ignored.get());
    values_ = at::Tensor();
  }

 private:
  static uint64_t room_of(const at::Tensor& t) { return t.defined() ? (t.nbytes() + 63) / 64 * 64 : 0; }

  void begin_upload(const std::vector<at::Tensor>& tensors, ddh_stream* stream) {
    begin_side();
    if (is_uploading_) call(host_.stream->synchronize, host_.h, stream);  // the last micro-batch had no results
    uint64_t bytes = 0;
    for (const at::Tensor& t : tensors) bytes += room_of(t);
    if (up_.bytes() < bytes) up_ = Buffer(host_, DDH_TAG_DATA, bytes, "a batch on its way", 0, DDH_MEM_PINNED);
    is_uploading_ = true;
  }
  void begin_side() {
    if (side_ != nullptr) return;
    call(host_.stream->event_create, host_.h, &done_);
    call(host_.stream->create, host_.h, "results", &side_);
  }

  const Host& host_;
  const TorchDevice& device_;
  Buffer up_, down_;
  bool is_uploading_ = false;
  at::Tensor values_;
  ddh_stream* side_ = nullptr;
  ddh_event* done_ = nullptr;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
