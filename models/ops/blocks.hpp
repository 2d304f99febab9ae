// SPDX-License-Identifier: Apache-2.0
//
// ops/blocks.hpp: gradients that a strategy asks for in blocks of rows (ddh_param_desc.grad_block), in models that write their
// gradients themselves. A backward computes a product in the same blocks, whether it gives the gradient at once or leaves it
// for later, so the bits are equal.
#pragma once

#include <cstring>
#include <utility>

#include "ddh/sdk/later_gradients.hpp"
#include "products.hpp"
#include "view.hpp"

namespace ops {

// A block of a complete gradient. Blocks are many and small, so those in host memory need no tensors.
inline void give_block(const ddh_grad_block& block, const at::Tensor& gradient) {
  const auto numel = static_cast<int64_t>(block.numel);
  if (gradient.device().is_cpu() && gradient.is_contiguous() && block.grad_mode == DDH_GRAD_WRITE) {
    std::memcpy(block.grad, gradient.const_data_ptr<float>() + block.offset, block.numel * sizeof(float));
    return;
  }
  give(matrix(block.grad, 1, numel, DDH_F32, 0, gradient.device()).view(-1),
       gradient.view(-1).narrow(0, static_cast<int64_t>(block.offset), numel), block.grad_mode);
}

// A complete gradient, at once or later.
inline void give_or_keep(ddh::LaterGradients& later, const ddh_param_view& p, const at::Tensor& gradient) {
  if (!ddh::is_later(p)) return give(p, gradient);
  later.keep(p, [gradient](const ddh_grad_block& block) { give_block(block, gradient); });
}

// dw = dy^T x of a weight with a grad_block, at once or later. `s`: of the whole product, of which dy and x are the operands;
// `kept`: the tensors whose memory they are.
inline void give_or_keep_product(ddh::LaterGradients& later, const ddh_param_view& w, uint64_t grad_block,
                                 Products& products, LinearShape s, const at::Tensor& dy, const at::Tensor& x,
                                 std::vector<at::Tensor> kept) {
  const auto write = [&products, s, dy, x, kept = std::move(kept)](const ddh_grad_block& block) {
    LinearShape rows = s;
    rows.out = static_cast<int64_t>(block.numel) / s.in;
    rows.y_stride = s.ldy();
    const at::Tensor of_rows = dy.narrow(1, static_cast<int64_t>(block.offset) / s.in, rows.out);
    products.backward_weight(rows, operand(of_rows), operand(x), block.grad, block.grad_mode == DDH_GRAD_ADD);
  };
  if (ddh::is_later(w)) return later.keep(w, write);
  if (w.grad != nullptr) ddh::for_blocks(w, grad_block, write);
}

}  // namespace ops
