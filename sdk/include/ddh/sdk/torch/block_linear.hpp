// SPDX-License-Identifier: Apache-2.0
//
// ddh/sdk/torch/block_linear.hpp: linear layers on autograd whose weight's gradient is computed in the blocks of its
// grad_block: by the backward itself, or later by gradient_block. Both compute the same products, so the bits are equal.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <functional>

#include "ddh/sdk/later_gradients.hpp"
#include "ddh/sdk/torch/device.hpp"

namespace ddh {
inline namespace v1 DDH_HIDDEN {

// Adds rows of dy^T x (out, in) to an fp32 block of the gradient, or stores them. The product is complete before it is added.
inline void write_rows(const at::Tensor& x, const at::Tensor& dy, const ddh_grad_block& block) {
  const int64_t in = x.size(1), first = static_cast<int64_t>(block.offset) / in,
                rows = static_cast<int64_t>(block.numel) / in;
  at::Tensor to = tensor_at(block.grad, {rows, in}, at::kFloat, x.device());
  if (block.grad_mode == DDH_GRAD_WRITE) to.zero_();
  to.add_(at::mm(dy.narrow(1, first, rows).t(), x).to(at::kFloat));
}

// The gradient of the whole weight (out, in) in the dtype of its products, computed in blocks of `numel` elements.
inline at::Tensor whole_product(const at::Tensor& x, const at::Tensor& dy, uint64_t numel) {
  const int64_t in = x.size(1), out = dy.size(1), of_block = static_cast<int64_t>(numel) / in;
  at::Tensor gradient = at::empty({out, in}, x.options());
  for (int64_t first = 0; first < out; first += of_block) {
    const int64_t rows = std::min(of_block, out - first);
    gradient.narrow(0, first, rows).copy_(at::mm(dy.narrow(1, first, rows).t(), x));
  }
  return gradient;
}

// The same as write_rows with a gradient that is complete, in its dtype.
inline void write_part(const at::Tensor& gradient, const ddh_grad_block& block) {
  const auto first = static_cast<int64_t>(block.offset), numel = static_cast<int64_t>(block.numel);
  at::Tensor to = tensor_at(block.grad, {numel}, at::kFloat, gradient.device());
  if (block.grad_mode == DDH_GRAD_WRITE) to.zero_();
  to.add_(gradient.reshape(-1).narrow(0, first, numel).to(at::kFloat));
}

// Called in the backward of a layer: its input (rows, in) and the gradient of its output (rows, out).
using TakeRows = std::function<void(const at::Tensor& x, const at::Tensor& dy)>;

// The identity on y = x w^T + b, whose backward hands over what the gradient of w is made of.
struct HandOver : torch::autograd::Function<HandOver> {
  // `weight` makes the result need a gradient. `take` outlives the graph.
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& y, const at::Tensor& x,
                            const at::Tensor& /*weight*/, const TakeRows* take) {
    ctx->save_for_backward({x});
    ctx->saved_data["take"] = reinterpret_cast<int64_t>(take);
    return y.view_as(y);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const at::AutoGradMode no_graph(false);
    (*reinterpret_cast<const TakeRows*>(ctx->saved_data["take"].toInt()))(ctx->get_saved_variables()[0].detach(),
                                                                          gradients[0]);
    return {gradients[0], at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace DDH_HIDDEN
}  // namespace ddh
