// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/base.hpp: what every model on LibTorch shares: its device, its way in and out of LibTorch, and the
// transfers of batches and results. UnitModel, for models that write gradients themselves, derives from it; TorchModel, for
// models that use autograd, does too.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ddh/sdk/later_gradients.hpp"
#include "ddh/sdk/model.hpp"
#include "ddh/sdk/torch/device.hpp"
#include "ddh/sdk/torch/errors.hpp"
#include "ddh/sdk/torch/prepare.hpp"
#include "ddh/sdk/torch/transfers.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class TorchBase : public Model {
 public:
  // `operators`: the value of kOperatorsOption, if the model has that option.
  explicit TorchBase(const ddh_create& create, std::string_view operators = "auto")
      : Model(create), device_(host, operators), warnings_(host) {
    prepare_torch();
  }

  void forward(const ddh_unit_call& c) final {
    in_torch(c.stream, [&] {
      if (c.position == 0 && c.phase != DDH_PHASE_RECOMPUTE) forget_transfers(c.micro_batch);
      run_forward(c);
    });
  }
  void backward(const ddh_unit_call& c) final {
    later_.clear();
    in_torch(c.stream, [&] { run_backward(c); });
  }
  void gradient_block(const ddh_unit_call& c, const ddh_grad_block& block) final {
    in_torch(c.stream, [&] { later_.write(block); });
  }
  void metrics(int32_t program, int32_t micro_batch, double* sums, double* counts) final {
    in_torch(nullptr, [&] { give_metrics(program, micro_batch, sums, counts); });
  }
  // Frees in any case, also after a fault of the GPU, when a call can't begin.
  void discard(int32_t micro_batch) noexcept final {
    std::optional<TorchCall> call;
    try {
      call.emplace(host, device_, warnings_);
    } catch (const std::exception&) {  // the run ends; nothing is counted any more
    }
    later_.clear();
    forget(micro_batch);
    forget_transfers(micro_batch);
  }

 protected:
  virtual void run_forward(const ddh_unit_call& c) = 0;
  virtual void run_backward(const ddh_unit_call& c) = 0;
  virtual void give_metrics(int32_t program, int32_t micro_batch, double* sums, double* counts) = 0;
  // Frees what is kept for a micro-batch.
  virtual void forget(int32_t micro_batch) noexcept = 0;

  // Runs `body`, which calls LibTorch.
  template <class Body>
  void in_torch(ddh_stream* stream, const Body& body) {
    with_plain_errors(host, [&] {
      const TorchCall call(host, device_, warnings_, stream);
      body();
    });
  }

  // A batch's tensors on the device, the same at every call of the micro-batch; on the CPU they themselves. Undefined ones
  // stay undefined. They are kept until another micro-batch begins, because discard may come at the end of the step.
  std::vector<at::Tensor> on_device(int32_t micro_batch, const std::vector<at::Tensor>& tensors, ddh_stream* stream) {
    if (device_.where().is_cpu()) return tensors;
    if (uploaded_ != micro_batch) batch_.clear();
    if (batch_.empty()) batch_ = transfers_.upload(tensors, stream);
    uploaded_ = micro_batch;
    return batch_;
  }

  // The device of parameters, inputs and outputs: create tensors with its options.
  [[nodiscard]] const TorchDevice& device() const { return device_; }
  [[nodiscard]] Transfers& transfers() { return transfers_; }

  // What the last backward left for gradient_block.
  [[nodiscard]] LaterGradients& later() { return later_; }
  // Of the parameters of a view that are DDH_GRAD_LATER and that this backward did not use.
  void keep_zeros(const ddh_unit_view& view) {
    for (uint32_t i = 0; i < view.n_params; ++i) {
      const ddh_param_view& p = *ddh_view_param(&view, i);
      if (!is_later(p) || later_.keeps(p.param)) continue;
      later_.keep(p, [where = device_.where()](const ddh_grad_block& block) {
        if (block.grad_mode == DDH_GRAD_WRITE)
          tensor_at(block.grad, {static_cast<int64_t>(block.numel)}, at::kFloat, where).zero_();
      });
    }
  }

 private:
  void forget_transfers(int32_t micro_batch) noexcept {
    if (uploaded_ == micro_batch) batch_.clear();
    transfers_.discard(micro_batch);
  }

  const TorchDevice device_;
  TorchWarnings warnings_;
  Transfers transfers_{host, device_};
  LaterGradients later_;
  std::vector<at::Tensor> batch_;  // copies on the device, of micro-batch `uploaded_`
  int32_t uploaded_ = -1;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
