// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/unit_params.hpp: the parameters of a unit as autograd leaves on memory that the strategy owns.
//
// A leaf lives as long as the model, but its memory only for a call: bind() points its storage to the view, unbind() to
// nothing. Autograd saves views of weights (the transpose in a linear layer) that share this storage. So in backward
// they read the new memory, wherever the strategy has gathered it.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "ddh/sdk/later_gradients.hpp"
#include "ddh/sdk/plugin.hpp"
#include "ddh/sdk/torch/block_linear.hpp"
#include "ddh/sdk/torch/device.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

inline at::ScalarType scalar_type_of(int32_t dtype) {
  switch (dtype) {
    case DDH_F32:
      return at::kFloat;
    case DDH_BF16:
      return at::kBFloat16;
    case DDH_F16:
      return at::kHalf;
    case DDH_I64:
      return at::kLong;
    default:
      fail(DDH_UNIMPLEMENTED, "TorchModel knows no dtype ", dtype, "; use fp32, bf16, fp16 or int64");
  }
}

class UnitParams {
 public:
  // `trained`: one per parameter of the model, 1 = trained where this object serves. Leaves have the dtypes of `view`.
  // `device`: where its memory is.
  UnitParams(const ddh_model_desc& model, int32_t unit, const std::vector<uint8_t>& trained, const ddh_unit_view& view,
             at::Device device)
      : device_(device) {
    const ddh_unit_desc& desc = *model.units[unit];
    for (uint32_t i = 0; i < desc.n_params; ++i) {
      const ddh_param_desc& param = *model.params[desc.params[i]];
      const at::ScalarType type = scalar_type_of(ddh_view_param(&view, i)->dtype);
      names_.emplace_back(param.name);
      // A leaf of the right shape on one byte that is never read; bind() provides the memory.
      leaves_.push_back(tensor_at(&nothing_, at::IntArrayRef(param.shape, param.n_dims), type, device));
      leaves_.back().storage().unsafeGetStorageImpl()->set_nbytes(param.numel * at::elementSize(type));
      leaves_.back().set_requires_grad(trained[static_cast<size_t>(desc.params[i])] != 0);
    }
  }
  UnitParams(const UnitParams&) = delete;
  UnitParams& operator=(const UnitParams&) = delete;

  [[nodiscard]] const std::vector<at::Tensor>& leaves() const { return leaves_; }

  // Until unbind() the leaves have the view's values. In backward the gradients of fp32 leaves are the view's buffers.
  // Buffers with DDH_GRAD_WRITE are zeroed here, so an unused parameter has gradient zero.
  void bind(const ddh_unit_view& view) {
    for (uint32_t i = 0; i < leaves_.size(); ++i) {
      const ddh_param_view& p = *ddh_view_param(&view, i);
      if (scalar_type_of(p.dtype) != leaves_[i].scalar_type() || (p.grad != nullptr && p.grad_dtype != DDH_F32)) {
        fail(DDH_INTERNAL, "the strategy shows parameter '", names_[i],
             "' in another dtype than before, or its gradient not in fp32; correct the strategy");
      }
      point(i, p.data);
      if (!takes_gradient(p, i)) continue;
      if (p.grad_mode == DDH_GRAD_WRITE) buffer(p, i).zero_();
      if (p.dtype == DDH_F32) leaves_[i].mutable_grad() = buffer(p, i);
    }
  }

  // Called after autograd's backward. Gradients of 16-bit leaves are in 16 bits, complete for this use: they are
  // converted to fp32 and added once. Throws if autograd stored a gradient of an fp32 leaf outside the view's buffer.
  void take_gradients(const ddh_unit_view& view) {
    for (uint32_t i = 0; i < leaves_.size(); ++i) {
      const ddh_param_view& p = *ddh_view_param(&view, i);
      if (!takes_gradient(p, i)) continue;
      if (p.dtype != DDH_F32) {
        if (leaves_[i].grad().defined()) buffer(p, i).add_(leaves_[i].grad().to(at::kFloat));
      } else if (!device_.is_meta() && leaves_[i].grad().const_data_ptr() != p.grad) {
        fail(DDH_INTERNAL, "autograd replaced the gradient of '", names_[i],
             "'; a backward must not use create_graph or sparse gradients");
      }
    }
  }

  // The same of parameters that are DDH_GRAD_LATER: what autograd computed whole, because the model used them in other ways
  // than TorchModel::linear, comes after the products of that.
  void keep_gradients(const ddh_unit_view& view, LaterGradients& later) const {
    for (uint32_t i = 0; i < leaves_.size(); ++i) {
      const ddh_param_view& p = *ddh_view_param(&view, i);
      if (!is_later(p) || !leaves_[i].grad().defined()) continue;
      later.keep(p, [gradient = leaves_[i].grad()](const ddh_grad_block& block) { write_part(gradient, block); });
    }
  }

  void unbind() noexcept {
    for (uint32_t i = 0; i < leaves_.size(); ++i) {
      leaves_[i].mutable_grad() = at::Tensor();
      point(i, nullptr);
    }
  }

 private:
  [[nodiscard]] bool takes_gradient(const ddh_param_view& p, uint32_t i) const {
    return p.grad != nullptr && leaves_[i].requires_grad();
  }
  [[nodiscard]] at::Tensor buffer(const ddh_param_view& p, uint32_t i) const {
    return tensor_at(p.grad, leaves_[i].sizes(), at::kFloat, device_);
  }
  void point(uint32_t i, void* data) {
    if (!device_.is_meta()) leaves_[i].storage().unsafeGetStorageImpl()->set_data_ptr_noswap({data, device_});
  }

  const at::Device device_;
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
