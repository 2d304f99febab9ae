// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/unit_params.hpp: the parameters of a unit as autograd leaves on memory that the strategy owns.
//
// A leaf lives as long as the model, its memory only for a call: bind() points its storage at the view, unbind() at nothing.
// Autograd saves views of weights (the transpose in a linear layer), and these keep the same storage, so that what forward
// saved reads the new memory in backward, wherever the strategy gathered it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <vector>

#include "ddh/sdk/plugin.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

class UnitParams {
 public:
  // `trained`: one per parameter of the model, 1 = trained by the program that this object serves.
  UnitParams(const ddh_model_desc& model, int32_t unit, const std::vector<uint8_t>& trained) {
    const ddh_unit_desc& desc = *model.units[unit];
    for (uint32_t i = 0; i < desc.n_params; ++i) {
      const ddh_param_desc& param = *model.params[desc.params[i]];
      const auto numel = static_cast<int64_t>(param.numel);
      names_.emplace_back(param.name);
      // A leaf of its right shape on one byte that is never read; bind() gives the memory.
      leaves_.push_back(at::from_blob(&nothing_, at::IntArrayRef(param.shape, param.n_dims), at::kFloat));
      leaves_.back().storage().unsafeGetStorageImpl()->set_nbytes(static_cast<size_t>(numel) * sizeof(float));
      leaves_.back().set_requires_grad(trained[static_cast<size_t>(desc.params[i])] != 0);
    }
  }
  UnitParams(const UnitParams&) = delete;
  UnitParams& operator=(const UnitParams&) = delete;

  [[nodiscard]] const std::vector<at::Tensor>& leaves() const { return leaves_; }

  // Until unbind() the leaves show the view's values, and in backward their gradients are the view's buffers. A buffer to be
  // written is zero from here on, so that a parameter which nothing reaches has gradient zero.
  void bind(const ddh_unit_view& view) {
    for (uint32_t i = 0; i < leaves_.size(); ++i) {
      const ddh_param_view& p = *ddh_view_param(&view, i);
      if (p.dtype != DDH_F32 || (p.grad != nullptr && p.grad_dtype != DDH_F32)) {
        fail(DDH_UNIMPLEMENTED, "parameter '", names_[i], "' is not shown in fp32; set precision.compute=fp32");
      }
      point(i, p.data);
      if (p.grad == nullptr || !leaves_[i].requires_grad()) continue;
      if (p.grad_mode == DDH_GRAD_WRITE) std::fill_n(static_cast<float*>(p.grad), p.numel, 0.0F);
      leaves_[i].mutable_grad() = at::from_blob(p.grad, leaves_[i].sizes(), at::kFloat);
    }
  }

  // Throws when autograd put a gradient elsewhere than into the view's buffer.
  void check_gradients(const ddh_unit_view& view) const {
    for (uint32_t i = 0; i < leaves_.size(); ++i) {
      const ddh_param_view& p = *ddh_view_param(&view, i);
      if (p.grad == nullptr || !leaves_[i].requires_grad()) continue;
      if (leaves_[i].grad().const_data_ptr() != p.grad)
        fail(DDH_INTERNAL, "autograd replaced the gradient of '", names_[i],
             "'; a backward must not use create_graph or sparse gradients");
    }
  }

  void unbind() noexcept {
    for (uint32_t i = 0; i < leaves_.size(); ++i) {
      leaves_[i].mutable_grad() = at::Tensor();
      point(i, nullptr);
    }
  }

 private:
  void point(uint32_t i, void* data) {
    leaves_[i].storage().unsafeGetStorageImpl()->set_data_ptr_noswap({data, c10::Device(c10::DeviceType::CPU)});
  }

  char nothing_ = 0;
  std::vector<std::string> names_;
  std::vector<at::Tensor> leaves_;
};

// Binds for a scope.
class BoundParams {
 public:
  BoundParams(UnitParams& params, const ddh_unit_view& view) : params_(params) { params_.bind(view); }
  BoundParams(const BoundParams&) = delete;
  BoundParams& operator=(const BoundParams&) = delete;
  ~BoundParams() { params_.unbind(); }

 private:
  UnitParams& params_;
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
